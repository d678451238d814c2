"""The protocol between the node agent and a container runtime.

It follows CRI, so that the embedded runtime and containerd can implement the same protocol.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from kedge.api.model import ModelMeta
from kedge.supervisor.machine_capabilities import MachineCapabilities


class RuntimeLevel(StrEnum):
    """The isolation that the machine permits, as a summary of MachineCapabilities."""

    FULL = "full"
    """Root with cgroups: namespaces, limits, network."""
    USERNS = "userns"
    """An ordinary user: namespaces, one mapped uid, no cgroups."""
    PLAIN = "plain"
    """Not even namespaces: processes in a group of their own."""


class RunState(StrEnum):
    """The state of a container."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


class PidMode(StrEnum):
    """The processes that a container sees."""

    CONTAINER = "container"
    POD = "pod"
    HOST = "host"
    TARGET = "target"


class RuntimeMessage(
    msgspec.Struct, metaclass=ModelMeta, frozen=True, kw_only=True, omit_defaults=True
):
    """Base of the messages below."""


UNLIMITED: Final = -1
"""A limit that is lifted, other than None, which leaves it as it is."""


class ContainerLimits(RuntimeMessage):
    """Limits of a cgroup; None keeps the machine's default."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    """Microseconds of a period; -1 for no limit."""
    cpu_period: int = 100_000
    memory_limit: int | None = None
    """Bytes; -1 for no limit."""
    pids_limit: int | None = None
    oom_score_adj: int = 0
    hugepages: Mapping[str, int] = {}
    """Bytes by page size as the kernel writes it: 2MB, 1GB."""


class PortMapping(RuntimeMessage):
    """A port that a pod declares, and the port of the machine that is forwarded to it."""

    container_port: int
    host_port: int = 0
    """0 for none."""
    protocol: str = "TCP"
    host_ip: str = ""


class DnsConfig(RuntimeMessage):
    """The content of a pod's resolv.conf."""

    servers: Sequence[str] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


class SandboxConfig(RuntimeMessage):
    """The properties that the containers of one pod share."""

    namespace: str
    name: str
    uid: str
    attempt: int = 0
    hostname: str = ""
    log_directory: str = ""
    cgroup_parent: str = ""
    """The pod's cgroup below the root of each hierarchy, which the node agent creates and removes.
    Empty without cgroups."""
    first_id: int = 0
    """The machine's id of the pod's id 0; its user namespace has the 65,536 ids from there on. 0
    for a pod without a user namespace."""
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    shared_pid: bool = False
    privileged: bool = False
    """Whether one of its containers is privileged, which other runtimes want to know before."""
    dns: DnsConfig = DnsConfig()
    ports: Sequence[PortMapping] = ()
    sysctls: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class PodSandbox(RuntimeMessage):
    """The state of a sandbox."""

    id: str
    namespace: str
    name: str
    uid: str
    attempt: int = 0
    ready: bool = True
    created_at: int = 0
    """Nanoseconds since the epoch, like all times below."""
    ips: Sequence[str] = ()
    """Empty for pods on the machine's own network."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class ContainerMount(RuntimeMessage):
    """A directory or file of the machine inside a container."""

    container_path: str
    host_path: str
    part: str = ""
    """The subPath to mount, which must stay beneath the source."""
    read_only: bool = False
    recursive_read_only: bool = False
    propagation: str = "None"
    """None, HostToContainer or Bidirectional."""
    makes_directory: bool = False
    """Whether a source that does not exist becomes a directory. CRI runtimes do this with every
    mount; it matters for those of device plugins, which may name paths of their own containers."""

    def takes(self, path: str) -> bool:
        """Return whether a path belongs to the mount: it is the mount itself, or in a directory
        that does not permit further mounts."""
        below = path.startswith(f"{self.container_path.rstrip('/')}/")
        return path == self.container_path or (below and self.read_only)


class ContainerDevice(RuntimeMessage):
    """A device of the machine inside a container."""

    container_path: str
    host_path: str
    permissions: str = "rwm"


class ContainerSecurity(RuntimeMessage):
    """The security settings of a container."""

    user: int | None = None
    username: str = ""
    """Looked up in the image if `user` is None; empty for the image's own user."""
    group: int | None = None
    groups: Sequence[int] = ()
    """Supplementary groups."""
    merge_image_groups: bool = True
    privileged: bool = False
    add_capabilities: Sequence[str] = ()
    drop_capabilities: Sequence[str] = ()
    read_only_root: bool = False
    no_new_privileges: bool = False
    seccomp: str = "RuntimeDefault"
    """RuntimeDefault, Unconfined, or the path of a profile."""
    selinux_label: str = ""
    """user:role:type:level; empty for none."""
    unmasked_proc: bool = False
    pid: PidMode = PidMode.CONTAINER
    pid_target: str = ""
    """The container whose processes are visible, for PidMode.TARGET."""


class ContainerConfig(RuntimeMessage):
    """The specification of a container."""

    name: str
    image: str
    """The id of an image on the machine (kedge.node.images)."""
    attempt: int = 0
    image_name: str = ""
    """The name in the manifest, for the status."""
    image_reference: str = ""
    """The name with registry and tag by which the image was found, after --image-map."""
    command: Sequence[str] = ()
    """Replaces the image's entry point."""
    args: Sequence[str] = ()
    """Replaces the image's arguments."""
    working_dir: str = ""
    env: Sequence[tuple[str, str]] = ()
    mounts: Sequence[ContainerMount] = ()
    devices: Sequence[ContainerDevice] = ()
    log_path: str = ""
    """Relative to the sandbox's log directory."""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    resources: ContainerLimits = ContainerLimits()
    security: ContainerSecurity = ContainerSecurity()
    stop_signal: str = ""
    """Replaces the image's."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class RuntimeContainer(RuntimeMessage):
    """The state of a container."""

    id: str
    sandbox: str
    name: str
    state: RunState
    attempt: int = 0
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    """Completed, Error, OOMKilled, StartError, ContainerStatusUnknown."""
    message: str = ""
    image: str = ""
    image_name: str = ""
    log_path: str = ""
    """Absolute."""
    pid: int = 0
    """The pid of its first process in the machine's namespace, while it runs or starts."""
    cgroup: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    user: int = 0
    group: int = 0
    groups: Sequence[int] = ()
    shortfalls: Sequence[str] = ()
    """Requested properties that the machine cannot enforce, as text."""
    runtime: str = "kedge"
    """The name of the runtime that runs it."""

    @property
    def url(self) -> str:
        """The containerID of a status."""
        return f"{self.runtime}://{self.id}"


class ExecResult(RuntimeMessage):
    """The result of a command in a container."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


class ContainerStream(Protocol):
    """A command, or a container's own streams, connected to a client. The holder of the stream owns
    the file descriptors; -1 means that there is none. With a terminal, `stdin` and `stdout` are the
    same."""

    stdin: int
    stdout: int
    stderr: int

    async def resize(self, width: int, height: int) -> None: ...

    async def wait(self) -> int:
        """Return the exit code; of the container, if it is attached."""
        ...

    async def close(self) -> None:
        """Close everything; a command that still runs is killed, a container is not."""
        ...


class ContainerEvent(RuntimeMessage):
    """A change of a container."""

    container: str
    sandbox: str
    pod_uid: str
    type: str
    """started, exited, removed, oom (a process was killed, the container may live on)."""


class NotFoundError(Exception):
    """The sandbox or container does not exist."""


class RuntimeFailure(Exception):
    """The runtime failed; the text is for the pod's events."""


class RuntimeFeatures(NamedTuple):
    """Abilities that not every runtime has."""

    strict_groups: bool = False
    """Leave the groups of the image away (supplementalGroupsPolicy: Strict)."""
    recursive_read_only: bool = False
    stop_signals: bool = False
    """Stop a container with the signal of its spec."""
    user_namespaces: bool = False


NO_FEATURES: Final = RuntimeFeatures()


class Runtime(Protocol):
    """Runs containers. Every method may raise RuntimeFailure. Those with a sandbox or a container
    raise NotFoundError if it does not exist, except stops and removals, which then succeed."""

    name: str
    version: str
    capabilities: MachineCapabilities
    no_user_namespaces: str
    """Why pods cannot have user namespaces; empty if they can."""
    features: RuntimeFeatures

    async def sandboxes(self) -> list[PodSandbox]: ...

    async def containers(self) -> list[RuntimeContainer]: ...

    async def container(self, container: str) -> RuntimeContainer: ...

    async def run_sandbox(self, spec: SandboxConfig) -> PodSandbox: ...

    async def stop_sandbox(self, sandbox: str) -> None:
        """Kill the processes of a sandbox and remove its network; its containers stay listed."""
        ...

    async def remove_sandbox(self, sandbox: str) -> None:
        """Remove a sandbox with its containers."""
        ...

    async def create_container(self, sandbox: str, spec: ContainerConfig) -> str: ...

    async def start_container(self, container: str) -> None:
        """Return when the program runs. If it cannot, raise RuntimeFailure; the container is then
        EXITED with code 128 and reason StartError."""
        ...

    async def stop_container(self, container: str, grace: float) -> None:
        """Send the stop signal, wait that many seconds, then kill; return when the container is
        EXITED."""
        ...

    async def remove_container(self, container: str) -> None:
        """Remove a container with its log file; a running one is killed first."""
        ...

    async def update_container(self, container: str, resources: ContainerLimits) -> None: ...

    async def execute(self, container: str, argv: Sequence[str], patience: float) -> ExecResult:
        """Run a command to its end. Raises TimeoutError if it takes longer. At most 256 KiB of each
        stream are kept."""
        ...

    async def exec_stream(
        self, container: str, argv: Sequence[str], *, tty: bool, stdin: bool
    ) -> ContainerStream: ...

    async def attach(self, container: str, *, stdin: bool) -> ContainerStream: ...

    async def dial(self, sandbox: str, port: int) -> int:
        """Return a connected TCP socket to a port on the pod's loopback address."""
        ...

    def watch(self) -> AsyncIterator[ContainerEvent]:
        """Yield events from now on. Ends when the connection is lost: list again, then watch
        again."""
        ...

    async def close(self) -> None:
        """Close the connection; containers continue to run."""
        ...
