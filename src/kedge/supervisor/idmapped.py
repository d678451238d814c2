"""Mounts whose files belong to the ids of a pod's user namespace.

On disk an owner is the id inside of the container. Seen through such a mount, it is the machine's
id that the container's id stands for; so files need no change of owner, and two pods with different
ranges can share a volume.
"""

import errno
import os
from collections.abc import Sequence

from kedge.supervisor import libc


class Unmappable(OSError):
    """A file system that cannot show other owners."""


def tree(source: str, user_namespace: int, *, recursive: bool = True) -> int:
    """Open a copy of a mount that shows the namespace's ids, attached nowhere yet."""
    opened = libc.open_tree(source, recursive=recursive)
    try:
        show(opened, source, user_namespace, recursive=recursive)
    except OSError:
        os.close(opened)
        raise
    return opened


def show(opened: int, source: str, user_namespace: int, *, recursive: bool = True) -> None:
    """Have a copy of a mount show the namespace's ids.

    Mounts below it that cannot do so stay as they are: their files belong to nobody in the
    container, which is safe. runc maps the uppermost mount only.
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
            # Not the kernel's number: EINVAL is what overlays say of many other things.
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
