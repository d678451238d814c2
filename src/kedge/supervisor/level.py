"""Finds the capabilities of this machine by trying, and enters the supervisor's namespaces."""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final

from kedge.supervisor import machine_capabilities, subordinate_ids
from kedge.supervisor.kernel import delegation, libc
from kedge.supervisor.kernel.cgroups import Cgroups
from kedge.supervisor.machine_capabilities import (
    ONE_ID,
    SUBORDINATE_IDS,
    MachineAttempts,
    MachineCapabilities,
)
from kedge.supervisor.network import SharedNamespaces

_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1
ALL: Final = (
    libc.NEW_MOUNT | libc.NEW_PID | libc.NEW_IPC | libc.NEW_UTS | libc.NEW_NET | libc.NEW_CGROUP
)

_REFUSED: Final = 1
_NO_OVERLAY: Final = 2
"""The exit code of an attempt at which everything works but overlays."""
_MANY_IDS: Final = 4
"""Added to the exit code if subordinate ids were mapped."""


def probe() -> tuple[MachineCapabilities, Cgroups]:
    """Return the capabilities of this machine, and the control groups that may be used."""
    is_root = os.geteuid() == 0
    namespaces = _outcome(_namespaces) if is_root else _REFUSED
    mapped = _outcome(_mapped_namespaces) if namespaces == _REFUSED else _REFUSED
    groups = delegation.here()
    tried = MachineAttempts(
        is_root=is_root,
        namespaces=namespaces != _REFUSED,
        mapped_namespaces=mapped != _REFUSED,
        overlay=0 in (namespaces, mapped & ~_MANY_IDS),
        controllers=groups.controllers(),
        sees_children=os.path.exists("/proc/thread-self/children"),
        subordinate_ids=mapped != _REFUSED and bool(mapped & _MANY_IDS),
    )
    return machine_capabilities.decide(tried), groups


def enter(shared: SharedNamespaces | None) -> int:
    """Continue as root of a user namespace with a network namespace, and as the first process of a
    new pid namespace; returns a descriptor of the machine's /proc. User and network namespace are
    new, or those that the supervisors of the cluster share.

    A process in a user namespace cannot return to namespaces that the machine owns, so the
    supervisor needs mount and pid namespaces of its own. The kernel kills all its containers when
    it ends, because it is the first process of their pid namespace.
    """
    outer = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if shared is None:
        if problem := subordinate_ids.unshare(libc.NEW_MOUNT | libc.NEW_PID | libc.NEW_NET):
            print(f"containers have one user and group: {problem}", file=sys.stderr, flush=True)
        raise_loopback()
    else:
        libc.setns(shared.user, libc.NEW_USER)
        libc.setns(shared.network, libc.NEW_NET)
        libc.unshare(libc.NEW_MOUNT | libc.NEW_PID)
        for descriptor in shared:
            os.close(descriptor)
    if os.fork():
        os._exit(0)
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("proc", "/proc", "proc")
    return outer


def with_own_ids(found: MachineCapabilities) -> MachineCapabilities:
    """Return the capabilities with the ids of the user namespace that was entered: another
    supervisor may have made it before ids were granted, or after they were withdrawn."""
    ids = SUBORDINATE_IDS if subordinate_ids.are_mapped() else ONE_ID
    return found._replace(ids=ids)


def isolate_network(*, is_mapped: bool) -> None:
    """Continue in a new network namespace, as root of a new user namespace if `is_mapped`."""
    if is_mapped:
        subordinate_ids.unshare(libc.NEW_NET)
    else:
        libc.unshare(libc.NEW_NET)


def raise_loopback() -> None:
    """Bring up the loopback device of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _outcome(attempt: Callable[[], int]) -> int:
    """Return the exit code of an attempt in a child, whose namespaces it may change."""
    pid = os.fork()
    if pid == 0:
        code = _REFUSED
        try:
            code = attempt()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code & ~_MANY_IDS in (0, _NO_OVERLAY) else _REFUSED


def _mapped_namespaces() -> int:
    subordinate_ids.unshare(libc.NEW_MOUNT)
    many = _MANY_IDS if subordinate_ids.are_mapped() else 0
    return _namespaces() | many


def _namespaces() -> int:
    libc.unshare(ALL)
    # Only a process inside the new namespace may mount its /proc.
    return _outcome(_mounts)


def _mounts() -> int:
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("tmpfs", "/", "tmpfs")
    tree = libc.open_tree("/dev", recursive=True)
    libc.set_mount(tree, on=libc.ATTR_RDONLY, recursive=True)
    libc.mount("proc", "/proc", "proc")
    has_overlays = _mounts_overlays()
    _replace_root()
    return 0 if has_overlays else _NO_OVERLAY


def _replace_root() -> None:
    """Replace the root by another. Docker's seccomp profile refuses that to a process that may
    mount."""
    place = "/dev"
    libc.mount("tmpfs", place, "tmpfs")
    os.chdir(place)
    libc.pivot_root(".", ".")


def _mounts_overlays() -> bool:
    """Return whether this process may mount an overlay, here of directories in memory."""
    place = "/dev"
    try:
        libc.mount("tmpfs", place, "tmpfs")
        for name in ("lower", "upper", "work", "root"):
            os.mkdir(f"{place}/{name}")
        os.chdir(place)
        options = "lowerdir=lower,upperdir=upper,workdir=work,userxattr"
        libc.mount("overlay", "root", "overlay", data=options)
    except OSError:
        return False
    return True
