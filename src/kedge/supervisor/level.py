"""How much of a container this machine lets us build; found out by trying."""

import os
from collections.abc import Callable
from typing import Final

from kedge.supervisor.kernel import cgroups, libc

FULL: Final = "full"
USERNS: Final = "userns"
PLAIN: Final = "plain"

ALL: Final = (
    libc.NEW_MOUNT | libc.NEW_PID | libc.NEW_IPC | libc.NEW_UTS | libc.NEW_NET | libc.NEW_CGROUP
)


def probe() -> tuple[str, bool]:
    """The level, and whether it takes a user namespace to get there."""
    if os.geteuid() == 0 and _works(_namespaces):
        # Root without control groups can isolate, but not limit: what an ordinary user can.
        return (FULL if cgroups.here().writable() else USERNS), False
    if _works(_mapped_namespaces):
        return USERNS, True
    return PLAIN, False


def enter() -> int:
    """Go on in a user namespace in which the user that we are is root, as the first process of a
    pid namespace; returns the machine's /proc as a descriptor.

    Of namespaces that belong to the machine there is no way back to them, so that the supervisor
    needs its own ones to come home to. And with it everything ends that it has begun.
    """
    outer = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _map_root(libc.NEW_MOUNT | libc.NEW_PID)
    if os.fork():
        os._exit(0)
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("proc", "/proc", "proc")
    return outer


def _map_root(namespaces: int) -> None:
    user, group = os.geteuid(), os.getegid()
    libc.unshare(libc.NEW_USER | namespaces)
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
