"""Runtime: the protocol between the node agent and whatever runs containers.

Shaped after CRI, so that the embedded runtime and containerd can stand behind the same door.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from kedge.api.model import ModelMeta


class Level(StrEnum):
    """How much of a container this machine lets us build."""

    FULL = "full"
    """Root with cgroups: namespaces, limits, network."""
    USERNS = "userns"
    """An ordinary user: namespaces, one mapped uid, no cgroups."""
    PLAIN = "plain"
    """Not even namespaces: processes in a group of their own."""


class State(StrEnum):
    """Where a container is in its life."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


class PidMode(StrEnum):
    """Whose processes a container sees."""

    CONTAINER = "container"
    POD = "pod"
    HOST = "host"
    TARGET = "target"


class Value(msgspec.Struct, metaclass=ModelMeta, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the messages below."""


class Resources(Value):
    """Limits in the terms of cgroups; None leaves the machine's own default."""

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


class PortMapping(Value):
    """A port of the machine that leads into a pod."""

    container_port: int
    host_port: int
    protocol: str = "TCP"
    host_ip: str = ""


class Dns(Value):
    """What resolv.conf of a pod says."""

    servers: Sequence[str] = ()
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


class SandboxConfig(Value):
    """What the containers of one pod share."""

    namespace: str
    name: str
    uid: str
    attempt: int = 0
    hostname: str = ""
    log_directory: str = ""
    cgroup_parent: str = ""
    """The pod's cgroup below the root of each hierarchy; the node agent makes and removes it.
    Empty where there are no cgroups."""
    first_id: int = 0
    """The machine's id of the pod's id 0; its user namespace has the 65,536 ids from there on. 0
    for a pod without a user namespace."""
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    shared_pid: bool = False
    dns: Dns = Dns()
    ports: Sequence[PortMapping] = ()
    sysctls: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Sandbox(Value):
    """A sandbox as it is."""

    id: str
    namespace: str
    name: str
    uid: str
    attempt: int = 0
    ready: bool = True
    created_at: int = 0
    """Nanoseconds since the epoch, as everywhere below."""
    ips: Sequence[str] = ()
    """Empty for pods on the machine's own network."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Mount(Value):
    """A directory or file of the machine inside a container."""

    container_path: str
    host_path: str
    part: str = ""
    """The subPath to mount, which must stay beneath the source."""
    read_only: bool = False
    recursive_read_only: bool = False
    propagation: str = "None"
    """None, HostToContainer or Bidirectional."""

    def takes(self, path: str) -> bool:
        """Whether nothing else can be had at a path: it is the mount's own, or in a directory to
        which nothing can be added."""
        below = path.startswith(f"{self.container_path.rstrip('/')}/")
        return path == self.container_path or (below and self.read_only)


class Device(Value):
    """A device of the machine inside a container."""

    container_path: str
    host_path: str
    permissions: str = "rwm"


class Security(Value):
    """What a container may do."""

    user: int | None = None
    username: str = ""
    """Looked up inside the image, when `user` is None; empty for the image's own."""
    group: int | None = None
    groups: Sequence[int] = ()
    """Supplemental ones."""
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
    """The container whose processes are seen, for PidMode.TARGET."""


class ContainerConfig(Value):
    """What one container is to be."""

    name: str
    image: str
    """Id of an image that is there: see kedge.node.images."""
    attempt: int = 0
    image_name: str = ""
    """As the manifest spells it, for reports."""
    command: Sequence[str] = ()
    """Replaces the image's entry point."""
    args: Sequence[str] = ()
    """Replaces the image's arguments."""
    working_dir: str = ""
    env: Sequence[tuple[str, str]] = ()
    mounts: Sequence[Mount] = ()
    devices: Sequence[Device] = ()
    log_path: str = ""
    """Relative to the sandbox's log directory."""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    resources: Resources = Resources()
    security: Security = Security()
    stop_signal: str = ""
    """Replaces the image's."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Container(Value):
    """A container as it is."""

    id: str
    sandbox: str
    name: str
    state: State
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
    """Of its first process as the machine counts, while it runs or is being started."""
    cgroup: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    user: int = 0
    group: int = 0
    groups: Sequence[int] = ()
    shortfalls: Sequence[str] = ()
    """What was asked for and cannot be enforced on this machine, in words."""


class Executed(Value):
    """How a command in a container went."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


class Stream(Protocol):
    """A command, or a container's own streams, connected to a client. File descriptors belong to
    whoever holds the stream; -1 where there is none. With a terminal, `stdin` and `stdout` are
    the same."""

    stdin: int
    stdout: int
    stderr: int

    async def resize(self, width: int, height: int) -> None: ...

    async def wait(self) -> int:
        """The exit code; for an attached container that of the container."""
        ...

    async def close(self) -> None:
        """Let go of everything; a command that still runs is killed, a container is not."""
        ...


class Happened(Value):
    """Something changed in a container."""

    container: str
    sandbox: str
    pod_uid: str
    type: str
    """started, exited, removed, oom (a process was killed, the container may live on)."""


class NotFoundError(Exception):
    """There is no such sandbox or container."""


class RuntimeFailure(Exception):
    """The runtime could not do what was asked; the text is for the pod's events."""


class Runtime(Protocol):
    """Runs containers. Every method may raise RuntimeFailure; those that name a sandbox or a
    container raise NotFoundError if it is gone, except removals and stops, which are then done."""

    name: str
    version: str
    level: Level
    no_user_namespaces: str
    """Why pods cannot have user namespaces; empty if they can."""

    async def sandboxes(self) -> list[Sandbox]: ...

    async def containers(self) -> list[Container]: ...

    async def container(self, container: str) -> Container: ...

    async def run_sandbox(self, spec: SandboxConfig) -> Sandbox: ...

    async def stop_sandbox(self, sandbox: str) -> None:
        """Kill what still runs in it and take its network down; its containers stay listed."""
        ...

    async def remove_sandbox(self, sandbox: str) -> None:
        """And its containers."""
        ...

    async def create_container(self, sandbox: str, spec: ContainerConfig) -> str: ...

    async def start_container(self, container: str) -> None:
        """Returns when the program runs. If it cannot, raises RuntimeFailure and the container is
        EXITED with code 128 and reason StartError."""
        ...

    async def stop_container(self, container: str, grace: float) -> None:
        """Signal it, wait that many seconds, kill it; returns when it is EXITED."""
        ...

    async def remove_container(self, container: str) -> None:
        """Its log file too; one that runs is killed first."""
        ...

    async def update_container(self, container: str, resources: Resources) -> None: ...

    async def execute(self, container: str, argv: Sequence[str], patience: float) -> Executed:
        """Run a command to its end; TimeoutError if it takes longer. At most 256 KiB of each
        stream are kept."""
        ...

    async def exec_stream(
        self, container: str, argv: Sequence[str], *, tty: bool, stdin: bool
    ) -> Stream: ...

    async def attach(self, container: str, *, stdin: bool) -> Stream: ...

    async def dial(self, sandbox: str, port: int) -> int:
        """A connected TCP socket to a port on the pod's own loopback address."""
        ...

    def watch(self) -> AsyncIterator[Happened]:
        """What happens from now on. Ends when the connection is lost: list again, watch again."""
        ...

    async def close(self) -> None:
        """Let go of the runtime; containers run on."""
        ...
