"""Specs of containers and sandboxes: everything the supervisor needs, with no names to resolve."""

from typing import Any, TypedDict


class BindMount(TypedDict):
    """A file or directory of the machine inside a container."""

    source: str
    part: str
    """The subPath: a path below the source, which must not lead out of it; empty for all."""
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
    """One container. Its role is that of an OCI runtime spec."""

    lowers: list[str]
    """Layers of the image, the uppermost first; none for a view of the machine."""
    hidden: list[str]
    """Paths that a view of the machine must not show."""
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
    """The working directory; it is created if it does not exist."""
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
    """Whether paths of /proc and /sys that reveal too much of the machine are masked."""
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
    """Requested features that the agent knows to be missing."""


class SandboxSpec(TypedDict):
    """Properties that the containers of one pod share."""

    hostname: str
    host_network: bool
    host_pid: bool
    host_ipc: bool
    shared_pid: bool
    cgroup_parent: str
    sysctls: dict[str, str]
    first_id: int
    """The machine's id of id 0 in the pod's user namespace, which has 65,536 ids; 0 for a pod
    without one."""
    files: dict[str, str]
    """Small files for the containers, such as /etc/hosts: names and content."""
