"""What the node agent tells the supervisor to build, worked out to the last number."""

from typing import Any, TypedDict


class BindMount(TypedDict):
    """A file or directory of the machine inside a container."""

    source: str
    part: str
    """What of the source is shown, by a path that must not lead out of it; empty for all."""
    target: str
    read_only: bool
    recursive: bool
    """Whether read-only goes for mounts below it as well."""
    propagation: str


class DeviceNode(TypedDict):
    """A device of the machine inside a container."""

    source: str
    target: str
    permissions: str


class ContainerSpec(TypedDict):
    """One container."""

    lowers: list[str]
    """Directories that make the root, the uppermost first; none for a view of the machine."""
    hidden: list[str]
    """What a view of the machine must not show."""
    concealed: list[str]
    """Files and directories that are empty in a view of the machine."""
    shown: list[str]
    """Directories below concealed ones that are shown all the same."""
    binds: list[BindMount]
    devices: list[DeviceNode]
    argv: list[str]
    env: list[str]
    """NAME=value"""
    directory: str
    """Where the program starts; it is made if need be."""
    user: int
    group: int
    groups: list[int]
    capabilities: int
    """One bit for each."""
    seccomp: str
    """A classic BPF program in base64; empty for none."""
    no_new_privileges: bool
    privileged: bool
    read_only: bool
    masked: bool
    """Whether what tells too much of the machine is hidden from it."""
    pid: str
    """container, pod, host or target."""
    pid_target: str
    terminal: bool
    stdin: bool
    stdin_once: bool
    log: str
    stop_signal: int
    resources: dict[str, Any]
    oom_score_adj: int
    shortfalls: list[str]
    """What the agent knows cannot be had."""


class SandboxSpec(TypedDict):
    """What the containers of one pod share."""

    hostname: str
    host_network: bool
    host_pid: bool
    host_ipc: bool
    shared_pid: bool
    cgroup_parent: str
    sysctls: dict[str, str]
    first_id: int
    """The first of the machine's ids that the ids 0 to 65,535 of the pod's own user namespace are;
    0 for a pod without one."""
    files: dict[str, str]
    """Small files that containers get to see: names and content."""
