"""Mounts inside a container's root, addressed by descriptors instead of paths.

A path can be replaced by a link between the check and the mount; the file behind a descriptor
cannot. mount(2) takes paths only, so a descriptor is passed to it as /proc/self/fd/N.
"""

import os
import stat
from typing import Final

from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs import idmapped, inside

SAFE: Final = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
CURRENT_DIRECTORY: Final = -100


def path_of(descriptor: int) -> str:
    """Return a path that leads to an open file."""
    return f"/proc/self/fd/{descriptor}"


def mount_kernel_filesystem(root: int, path: str, kind: str, flags: int, data: str = "") -> None:
    """Mount a file system such as proc at a directory of the root that is not a link."""
    target = inside.plain_directory(root, path.removeprefix("/"))
    libc.mount(kind, path_of(target), kind, flags, data)
    os.close(target)


def bind_read_only(source: str, target: int, userns: int) -> None:
    """Mount a file or directory of the machine, with the mounts below it, for reading only."""
    tree = libc.open_tree(source)
    if userns >= 0:
        idmapped.show(tree, source, userns)
    libc.set_mount(tree, on=libc.ATTR_RDONLY, recursive=True)
    libc.move_mount(tree, target)
    os.close(tree)


def cover(found: int, null: int) -> None:
    """Mount an empty directory over a directory, or the null device over anything else."""
    if stat.S_ISDIR(os.fstat(found).st_mode):
        libc.mount("tmpfs", path_of(found), "tmpfs", SAFE | libc.MS_RDONLY, "size=0,mode=755")
    else:
        tree = node_tree("", null)
        libc.move_mount(tree, found)
        os.close(tree)
    os.close(found)


def hide(root: int, path: str, null: int) -> None:
    """Cover a path inside the root, if it exists."""
    try:
        found = inside.find(root, path)
    except PermissionError:
        # The container's processes have fewer rights than this one, so they cannot reach it.
        return
    if found is not None:
        cover(found, null)


def node_tree(source: str, at: int = CURRENT_DIRECTORY) -> int:
    """Return a device node of the machine as a detached mount.

    The mount is read-only, which does not limit writes to the device itself. It protects mode,
    owner and times of the node, which are the machine's: otherwise root in a container could
    make /dev/null unusable for the whole machine.
    """
    tree = libc.open_tree(source, at=at, recursive=False)
    libc.set_mount(tree, on=libc.ATTR_RDONLY)
    return tree


def own_new_files(userns: int, first_id: int) -> None:
    """Make root of the pod's user namespace, if it has one, the owner of new mount points and of
    in-memory file systems."""
    if userns >= 0:
        libc.own_new_files(first_id, first_id)
