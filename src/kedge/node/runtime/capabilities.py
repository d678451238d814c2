"""Linux capabilities: the default set, and the set of a container."""

from collections.abc import Iterable
from typing import Final

NAMES: Final = (
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
)
"""In the kernel's order: the index is the number."""

ALL: Final = frozenset(NAMES)
DEFAULT: Final = frozenset(
    {
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "SETGID",
        "SETUID",
        "SETPCAP",
        "NET_BIND_SERVICE",
        "NET_RAW",
        "SYS_CHROOT",
        "MKNOD",
        "AUDIT_WRITE",
        "SETFCAP",
    }
)
"""The default of containerd and docker."""


class UnknownCapability(ValueError):
    """The capability does not exist."""


def effective_capabilities(
    add: Iterable[str], drop: Iterable[str], *, privileged: bool
) -> frozenset[str]:
    """Return the capabilities of a container. One that is dropped by name stays dropped even if all
    are added."""
    added, dropped = (frozenset(map(_plain, names)) for names in (add, drop))
    if privileged:
        return ALL
    base = ALL if "ALL" in added else DEFAULT
    if "ALL" in dropped:
        base = ALL if "ALL" in added else frozenset()
    return (base | (added & ALL)) - (dropped - added)


def mask(names: Iterable[str]) -> int:
    """Return the capabilities as a bit mask."""
    return sum(1 << NAMES.index(name) for name in names)


def _plain(name: str) -> str:
    plain = name.upper().removeprefix("CAP_")
    if plain != "ALL" and plain not in ALL:
        raise UnknownCapability(f'unknown capability "{name}"')
    return plain
