"""/proc and /sys of a container, and the masks on them."""

import errno
import os
import socket
from typing import Final

from kedge.supervisor import wire
from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs import inside, mounts
from kedge.supervisor.rootfs.options import RootfsOptions
from kedge.supervisor.rootfs.volumes import UnsafeMount

_CPUS: Final = "/sys/devices/system/cpu"


def _thermal_throttles() -> list[str]:
    cpus = os.listdir(_CPUS) if os.path.isdir(_CPUS) else []
    paths = [f"{_CPUS}/{name}/thermal_throttle" for name in cpus if name[3:].isdigit()]
    return [path for path in paths if os.path.exists(path)]


MASKED: Final = (
    *_thermal_throttles(),
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
"""Paths that reveal the machine's memory, keys or other containers' activity: they are covered.
This list and the next one are containerd's and Docker's defaults for the OCI runtime spec."""
READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Paths through which root in a container could configure the machine's kernel."""

_PROC_ROOT_INODE: Final = 1
"""The inode number of the root directory of every procfs."""


def open_shared_proc(options: RootfsOptions) -> int:
    """Return, as a detached mount, the /proc of a pid namespace that this process enters only
    after the root is built; -1 if it is in its pid namespace already."""
    namespace, path = options.proc
    if namespace < 0:
        return -1
    if options.userns >= 0:
        tree = _proc_of_children(options.mount_point)
    else:
        tree = tree_of(namespace, path)
    # The other container may have mounted something else at its /proc; the masks below would
    # then protect nothing.
    if not libc.is_proc(tree) or os.fstat(tree).st_ino != _PROC_ROOT_INODE:
        raise UnsafeMount(
            errno.EPERM, f"{path} of the container whose processes it shares is not /proc"
        )
    libc.set_mount(tree, on=libc.ATTR_NOSUID | libc.ATTR_NODEV | libc.ATTR_NOEXEC)
    return tree


def _proc_of_children(place: str) -> int:
    """Return the /proc of the pid namespace of this process's children, mounted by one of them.

    The /proc of another container in a user namespace cannot be copied: the kernel has locked its
    masks on top of it. The container sees the child with all its privileges, but processes in a
    user namespace cannot trace or signal a process of the machine.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            libc.unshare(libc.NEW_MOUNT)
            libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
            libc.mount("proc", place, "proc", mounts.SAFE)
            wire.post(theirs, b"{}", [libc.open_tree(place, recursive=False)])
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        try:
            _, (tree,) = wire.take(ours)
        except wire.PeerClosed:
            raise OSError(errno.EPERM, "/proc of the pod cannot be mounted") from None
        finally:
            os.waitpid(pid, 0)
    return tree


def tree_of(namespace: int, path: str) -> int:
    """Return a mount of another mount namespace as a detached mount."""
    home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    libc.setns(namespace, libc.NEW_MOUNT)
    try:
        return libc.open_tree(path, recursive=False)
    finally:
        libc.setns(home, libc.NEW_MOUNT)
        os.close(home)


def mount(root: int, options: RootfsOptions, proc_tree: int, *, privileged: bool) -> None:
    """Mount /proc, /sys and the control groups."""
    if proc_tree >= 0:
        libc.move_mount(proc_tree, inside.plain_directory(root, "proc"))
    else:
        mounts.mount_kernel_filesystem(root, "/proc", "proc", mounts.SAFE)
    # A writable sysfs or cgroup file system controls devices and limits of the whole machine.
    lock = 0 if privileged else libc.MS_RDONLY
    try:
        mounts.mount_kernel_filesystem(root, "/sys", "sysfs", mounts.SAFE | lock)
    except PermissionError:
        # Only the owner of the network namespace may mount sysfs: a rootless pod with the
        # machine's network is not.
        target = inside.plain_directory(root, "sys")
        mounts.bind_read_only("/sys", target, -1)
        os.close(target)
        return
    if options.cgroup_views == [("", "")]:
        mounts.mount_kernel_filesystem(root, "/sys/fs/cgroup", "cgroup2", mounts.SAFE | lock)
    elif options.cgroup_views:
        _mount_cgroup_v1(root, options, lock)


def _mount_cgroup_v1(root: int, options: RootfsOptions, lock: int) -> None:
    """Mount one directory per hierarchy below /sys/fs/cgroup."""
    mounts.mount_kernel_filesystem(
        root, "/sys/fs/cgroup", "tmpfs", mounts.SAFE, "mode=755,size=64k"
    )
    top = inside.plain_directory(root, "sys/fs/cgroup")
    path = mounts.path_of(top)
    for name, data in options.cgroup_views:
        os.mkdir(name, dir_fd=top)
        kind = "cgroup" if data else "cgroup2"
        libc.mount(kind, f"{path}/{name}", kind, mounts.SAFE | lock, data)
    if lock:
        libc.mount("", path, "", mounts.SAFE | libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY)
    os.close(top)


def mask(root: int, null: int) -> None:
    """Cover the masked paths, and make others read-only."""
    for path in MASKED:
        if (found := inside.find(root, path)) is not None:
            mounts.cover(found, null)
    for path in READ_ONLY:
        if (found := inside.find(root, path)) is not None:
            tree = libc.open_tree("", at=found)
            libc.set_mount(tree, on=libc.ATTR_RDONLY | libc.ATTR_NOSUID, recursive=True)
            libc.move_mount(tree, found)
            os.close(tree)
            os.close(found)
