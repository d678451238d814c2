"""The isolation level of this machine, determined by trying: full, userns or plain."""

import fcntl
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from kedge.supervisor.kernel import cgroups, libc
from kedge.supervisor.network import SharedNamespaces

FULL: Final = "full"
USERNS: Final = "userns"
PLAIN: Final = "plain"

_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1
ALL: Final = (
    libc.NEW_MOUNT | libc.NEW_PID | libc.NEW_IPC | libc.NEW_UTS | libc.NEW_NET | libc.NEW_CGROUP
)


def probe() -> tuple[str, bool]:
    """Return the level, and whether it needs a user namespace for the supervisor itself."""
    if os.geteuid() == 0 and _works(_namespaces):
        # Root without control groups can isolate, but not limit, like an ordinary user.
        return (FULL if cgroups.here().writable() else USERNS), False
    if _works(_mapped_namespaces):
        return USERNS, True
    return PLAIN, False


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
        _map_root(libc.NEW_MOUNT | libc.NEW_PID | libc.NEW_NET)
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


def raise_loopback() -> None:
    """Bring up the loopback device of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _map_root(namespaces: int) -> None:
    user, group = os.geteuid(), os.getegid()
    libc.unshare(libc.NEW_USER | namespaces)
    cgroups.write("/proc/self/setgroups", "deny")
    cgroups.write("/proc/self/uid_map", f"0 {user} 1")
    cgroups.write("/proc/self/gid_map", f"0 {group} 1")


def _works(attempt: Callable[[], None]) -> bool:
    """Return whether an attempt succeeds in a child, whose namespaces it may change."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _mapped_namespaces() -> None:
    _map_root(libc.NEW_MOUNT)
    _namespaces()


def _namespaces() -> None:
    libc.unshare(ALL)
    # Only a process inside the new namespace may mount its /proc.
    pid = os.fork()
    if pid == 0:
        try:
            _mounts()
        except BaseException:
            os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(1, "mounts are refused")


def _mounts() -> None:
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("tmpfs", "/", "tmpfs")
    tree = libc.open_tree("/dev", recursive=True)
    libc.set_mount(tree, on=libc.ATTR_RDONLY, recursive=True)
    libc.mount("proc", "/proc", "proc")
