"""/dev of a container: device nodes, shared memory, message queues and terminals."""

import contextlib
import fcntl
import os
import stat
import struct
from typing import Final

from kedge.supervisor.kernel import devices, libc
from kedge.supervisor.rootfs import inside, mounts, proc_sys
from kedge.supervisor.rootfs.options import RootfsOptions
from kedge.supervisor.spec import ContainerSpec, DeviceNode

_LINKS: Final = (
    ("pts/ptmx", "ptmx"),
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("/proc/kcore", "core"),
)
_TTY_GROUP: Final = 5
_TIOCGPTN: Final = 0x8004_5430


def open_shared_memory(options: RootfsOptions) -> int:
    """Return the pod's /dev/shm as a detached mount. It is in a mount namespace of its own, so
    that the machine has no mount for it."""
    if options.shm < 0:
        return libc.open_tree("/dev/shm")
    return proc_sys.tree_of(options.shm, "/")


def mount(root: int, spec: ContainerSpec, options: RootfsOptions, shm: int) -> None:
    """Mount /dev and the file systems below it."""
    flags = libc.MS_NOSUID | libc.MS_STRICTATIME | (0 if options.any_device else libc.MS_NODEV)
    mounts.mount_kernel_filesystem(root, "/dev", "tmpfs", flags, "mode=755,size=64m")
    top = inside.plain_directory(root, "dev")
    dev = mounts.path_of(top)
    for name in ("pts", "mqueue", "shm"):
        os.mkdir(f"{dev}/{name}")
    for source, name in _LINKS:
        os.symlink(source, f"{dev}/{name}")
    previous = os.umask(0)
    _make_nodes(dev, spec, options)
    os.umask(previous)
    # A rootless supervisor cannot give a terminal to another group.
    owner = "" if options.rootless else f",gid={options.first_id + _TTY_GROUP}"
    # A new instance: the container sees only its own terminals.
    pts = f"newinstance,ptmxmode=0666,mode=0620{owner}"
    libc.mount("devpts", f"{dev}/pts", "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, pts)
    # Only the owner of the ipc namespace may mount mqueue.
    with contextlib.suppress(PermissionError):
        libc.mount("mqueue", f"{dev}/mqueue", "mqueue", mounts.SAFE)
    target = os.open(f"{dev}/shm", os.O_PATH | os.O_CLOEXEC)
    libc.move_mount(shm, target)
    os.close(target)
    os.close(top)


def open_terminal(root: int) -> int:
    """Open a new terminal of the container and mount it at /dev/console; returns its controlling
    side.

    Both happen before volumes are mounted: links in a volume at /dev could redirect the open or
    the mount to another file (CVE-2025-52565).
    """
    top = inside.plain_directory(root, "dev")
    dev = mounts.path_of(top)
    controlling = os.open(f"{dev}/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    number = struct.unpack("I", fcntl.ioctl(controlling, _TIOCGPTN, b"\0" * 4))[0]
    os.close(os.open(f"{dev}/console", os.O_CREAT | os.O_CLOEXEC, 0o620))
    libc.mount(f"{dev}/pts/{number}", f"{dev}/console", flags=libc.MS_BIND)
    os.close(top)
    return controlling


def make_standard_nodes(dev: str) -> None:
    """Make the devices that every container has, as far as the kernel allows."""
    os.makedirs(dev, exist_ok=True)
    previous = os.umask(0)
    for name, major, minor in devices.NODES:
        with contextlib.suppress(OSError):
            os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    os.umask(previous)


def is_below_dev(node: DeviceNode) -> bool:
    """Whether a device can be a node on the container's /dev. Elsewhere the root is mounted nodev,
    so that devices have to be bind-mounted."""
    return os.path.normpath(node["target"]).startswith("/dev/")


def _make_nodes(dev: str, spec: ContainerSpec, options: RootfsOptions) -> None:
    """Make device nodes, or bind-mount them if only those work."""
    if not options.any_device:
        for name, _, _ in devices.NODES:
            _bind_node(f"/dev/{name}", f"{dev}/{name}")
        return
    for name, major, minor in devices.NODES:
        os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    if spec["privileged"]:
        _copy_all_nodes("/dev", dev)
    for node in filter(is_below_dev, spec["devices"]):
        _make_node(node, dev, options.first_id)


def _bind_node(source: str, path: str) -> None:
    target = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    tree = mounts.node_tree(source)
    libc.move_mount(tree, target)
    os.close(tree)
    os.close(target)


def _copy_all_nodes(source: str, target: str) -> None:
    """Copy every device node of the machine, for a privileged container."""
    for entry in os.scandir(source):
        path = f"{target}/{entry.name}"
        if entry.name in ("pts", "shm", "mqueue", "fd", "console") or os.path.lexists(path):
            continue
        status = entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            os.mkdir(path, 0o755)
            _copy_all_nodes(entry.path, path)
        elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            # With a user namespace it keeps the machine's owner: devices that only root may
            # open, such as disks, cannot be opened in the container.
            _copy_node(path, status)


def _make_node(node: DeviceNode, dev: str, first_id: int) -> None:
    """Add a device of the spec below /dev. The container may use it, so its owner is mapped to
    the same id in the container."""
    path = dev + os.path.normpath(node["target"]).removeprefix("/dev")
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    _copy_node(path, os.stat(node["source"]), first_id)


def _copy_node(path: str, status: os.stat_result, first_id: int = 0) -> None:
    os.mknod(path, status.st_mode, status.st_rdev)
    os.chown(path, first_id + status.st_uid, first_id + status.st_gid)
