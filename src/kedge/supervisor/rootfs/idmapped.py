"""Mounts whose files belong to the ids of a pod's user namespace.

On disk the owner of a file is the id inside the container. The mount shows it as the machine's
id for that container id. So files keep their owners, and two pods with different ranges can
share a volume.
"""

import errno
import os
from collections.abc import Sequence

from kedge.supervisor.kernel import libc


class Unmappable(OSError):
    """A file system without support for id-mapped mounts."""


def tree(source: str, user_namespace: int, *, recursive: bool = True) -> int:
    """Open a detached copy of a mount, mapped to the namespace's ids."""
    opened = libc.open_tree(source, recursive=recursive)
    try:
        show(opened, source, user_namespace, recursive=recursive)
    except OSError:
        os.close(opened)
        raise
    return opened


def show(opened: int, source: str, user_namespace: int, *, recursive: bool = True) -> None:
    """Map a copy of a mount to the namespace's ids.

    Mounts below it without id mapping stay unmapped: in the container their files belong to the
    overflow id, which is safe. runc maps only the uppermost mount.
    """
    try:
        if recursive:
            try:
                libc.map_ids(opened, user_namespace, recursive=True)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        libc.map_ids(opened, user_namespace, recursive=False)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise Unmappable(
            # Not the kernel's errno: overlays return EINVAL for many other errors.
            errno.EOPNOTSUPP,
            f'failed to set MOUNT_ATTR_IDMAP on "{source}": {reason}'
            " (maybe the filesystem used doesn't support idmap mounts on this kernel?)",
        ) from error


def lowers(directories: Sequence[str], place: str, user_namespace: int) -> list[str]:
    """Mount directories of an image below a place, owned by the namespace's ids; returns where."""
    os.makedirs(place, 0o700, exist_ok=True)
    libc.mount("tmpfs", place, "tmpfs", data="mode=700")
    found = []
    for number, directory in enumerate(directories):
        where = f"{place}/{number}"
        os.mkdir(where)
        attach(tree(directory, user_namespace, recursive=False), where)
        found.append(where)
    return found


def attach(opened: int, where: str) -> None:
    """Attach a copy of a mount, which is closed."""
    target = os.open(where, os.O_PATH | os.O_CLOEXEC)
    libc.move_mount(opened, target)
    os.close(target)
    os.close(opened)
