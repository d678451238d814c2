"""How much of a container this machine lets us build; found out by trying."""

import os
from collections.abc import Callable
from typing import Final

from kedge.supervisor import cgroups, libc

FULL: Final = "full"
USERNS: Final = "userns"
PLAIN: Final = "plain"

ALL: Final = (
    libc.NEW_MOUNT | libc.NEW_PID | libc.NEW_IPC | libc.NEW_UTS | libc.NEW_NET | libc.NEW_CGROUP
)


def detect() -> str:
    """The level of this process's containers."""
    if os.geteuid() == 0 and _works(_namespaces):
        # Root without control groups can isolate, but not limit: what an ordinary user can.
        return FULL if cgroups.here().writable() else USERNS
    if _works(_mapped_namespaces):
        return USERNS
    return PLAIN


def map_root() -> None:
    """Enter a user namespace in which the user that we are is root."""
    user, group = os.geteuid(), os.getegid()
    libc.unshare(libc.NEW_USER | libc.NEW_MOUNT)
    cgroups.write("/proc/self/setgroups", "deny")
    cgroups.write("/proc/self/uid_map", f"0 {user} 1")
    cgroups.write("/proc/self/gid_map", f"0 {group} 1")


def _works(attempt: Callable[[], None]) -> bool:
    """Try it in a process that may be spoilt."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _mapped_namespaces() -> None:
    map_root()
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
