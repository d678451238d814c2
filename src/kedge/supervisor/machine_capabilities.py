"""The capabilities of this machine: which isolation and which limits it permits.

A machine may permit namespaces and no control groups, or the other way round. So each part of the
supervisor and of the agent asks for the capability that it needs. The level (full, userns or plain)
only sums them up.
"""

from typing import Any, Final, NamedTuple

FULL: Final = "full"
USERNS: Final = "userns"
PLAIN: Final = "plain"

KERNEL: Final = "kernel"
"""The kernel enforces the limit."""
SAMPLED: Final = "sampled"
"""kedge measures the usage from time to time, and acts on what exceeds the limit."""
ADVISORY: Final = "advisory"
"""Nothing enforces the limit."""

ALL_IDS: Final = "all"
"""Containers have any user and group."""
SUBORDINATE_IDS: Final = "subordinate"
"""Containers have the users and groups that /etc/subuid and /etc/subgid grant to kedge's user."""
ONE_ID: Final = "one"
"""A container has one user and one group, with the numbers that it asks for."""
OWN_ID: Final = "own"
"""A container has the user and the group of kedge itself."""

CONFINED: Final = "confined"
"""The kernel refuses devices that a container was not given."""
BOUND: Final = "bound"
"""A container sees only the devices that it was given, with all permissions of kedge's user."""
UNCONFINED: Final = "unconfined"
"""A container sees the machine's devices."""


class MachineAttempts(NamedTuple):
    """The attempts that worked."""

    is_root: bool
    namespaces: bool
    """Whether a process may make namespaces and mounts as it is."""
    mapped_namespaces: bool
    """Whether it may as root of a user namespace; not tried if it may as it is."""
    overlay: bool
    """Whether it may mount an overlay there."""
    controllers: frozenset[str] = frozenset()
    """The controllers in whose hierarchies it may make groups."""
    sees_children: bool = True
    """Whether /proc names the children of a process, by which those of a container are found."""
    subordinate_ids: bool = False
    """Whether the user namespace has the subordinate ids of the user."""


class MachineCapabilities(NamedTuple):
    """The isolation and the limits that this machine permits."""

    is_root: bool
    """Whether kedge is root of the machine, with the right to mount file systems on it."""
    namespaces: bool
    """Whether containers have mount, pid, ipc, uts and network namespaces."""
    user_namespace: bool
    """Whether the supervisor is root only in a user namespace."""
    overlay: bool
    """Whether container roots are overlays; else they are copies."""
    ids: str
    """The users and groups of containers: all, subordinate, one or own."""
    devices: str
    """How the devices of containers are limited: confined, bound or unconfined."""
    controllers: tuple[str, ...]
    """The controllers of control groups that limit containers, in alphabetical order."""
    memory: str
    """How limits of memory are enforced: kernel, sampled or advisory."""
    cpu: str
    pids: str
    ephemeral_storage: str

    @property
    def has_cgroups(self) -> bool:
        """Whether containers have control groups, with any controller."""
        return bool(self.controllers)

    @property
    def level(self) -> str:
        """The capabilities in one word."""
        if not self.namespaces:
            return PLAIN
        is_full = self.is_root and self.memory == KERNEL
        return FULL if is_full else USERNS

    def document(self) -> dict[str, Any]:
        """Return the capabilities as the supervisor sends them to agents."""
        return {**self._asdict(), "controllers": list(self.controllers)}


def decide(tried: MachineAttempts) -> MachineCapabilities:
    """Return the capabilities that follow from what worked."""
    user_namespace = not (tried.is_root and tried.namespaces) and tried.mapped_namespaces
    namespaces = user_namespace or (tried.is_root and tried.namespaces)
    controllers = tried.controllers
    otherwise = SAMPLED if tried.sees_children else ADVISORY
    return MachineCapabilities(
        is_root=tried.is_root and tried.namespaces,
        namespaces=namespaces,
        user_namespace=user_namespace,
        overlay=namespaces and tried.overlay,
        ids=_ids(tried, user_namespace=user_namespace),
        devices=_devices(tried, namespaces=namespaces),
        controllers=tuple(sorted(controllers)),
        memory=KERNEL if "memory" in controllers else otherwise,
        cpu=KERNEL if "cpu" in controllers else otherwise,
        pids=KERNEL if "pids" in controllers else otherwise,
        # The kernel has no such limit that every file system supports; the kubelet samples too.
        ephemeral_storage=SAMPLED,
    )


def _ids(tried: MachineAttempts, *, user_namespace: bool) -> str:
    if user_namespace:
        return SUBORDINATE_IDS if tried.subordinate_ids else ONE_ID
    return ALL_IDS if tried.is_root else OWN_ID


def _devices(tried: MachineAttempts, *, namespaces: bool) -> str:
    if not namespaces:
        return UNCONFINED
    # In cgroup v2 a BPF program confines devices, which takes root but no controller.
    return CONFINED if tried.is_root and tried.namespaces and tried.controllers else BOUND


def of_level(level: str) -> MachineCapabilities:
    """Return the usual capabilities of a level: a supervisor of an earlier release names only
    that."""
    is_full = level == FULL
    return decide(
        MachineAttempts(
            is_root=is_full,
            namespaces=is_full,
            mapped_namespaces=level == USERNS,
            overlay=level != PLAIN,
            controllers=frozenset({"cpu", "memory", "pids"} if is_full else ()),
        )
    )


def read(hello: dict[str, Any]) -> MachineCapabilities:
    """Return the capabilities in the supervisor's answer to `hello`."""
    usual = of_level(hello["level"])
    said: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in hello.get("capabilities", {}).items()
        # Those of a later release are unknown here.
        if name in MachineCapabilities._fields
    }
    return usual._replace(**said)
