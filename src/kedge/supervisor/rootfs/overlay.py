"""Overlay mounts: the layers of an image below, the container's own directory on top."""

import contextlib
import errno
import os
import stat
from collections.abc import Sequence

from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs import conceal, idmapped, layer_copy
from kedge.supervisor.rootfs.options import Note, RootfsOptions

USER_XATTR = "userxattr"
"""Mount option for overlays in a user namespace, which may not set trusted.* attributes."""


def mount_layers(lowers: list[str], options: RootfsOptions, note: Note) -> None:
    """Mount the layers of an image, or a copy of them where overlays are not allowed."""
    extra = USER_XATTR if options.rootless else ""
    try:
        mount_or_keep_in_memory(lowers, options, note, extra)
    except PermissionError:
        if options.userns >= 0:
            # A copy would belong to the machine's ids, not to those of the pod.
            raise
        layer_copy.merge(lowers, f"{options.home}/copy")
        libc.mount(f"{options.home}/copy", options.mount_point, flags=libc.MS_BIND)


def mount_or_keep_in_memory(
    lowers: list[str],
    options: RootfsOptions,
    note: Note,
    extra: str = "",
    *,
    concealed: Sequence[str] = (),
) -> None:
    """Mount an overlay on the root's mount point, with its upper directory on disk if possible."""
    home, place, userns = options.home, options.mount_point, options.userns
    try:
        mount(lowers, home, place, extra, concealed, userns=userns)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Some file systems, such as another overlay, cannot hold the upper directory; tmpfs can.
        libc.mount("tmpfs", f"{home}/upper", "tmpfs", data="mode=755")
        for name in ("upper", "work"):
            os.mkdir(f"{home}/upper/{name}")
        mount(lowers, f"{home}/upper", place, extra, concealed, userns=userns)
        note("what the container writes to its root is kept in memory")


def mount(
    lowers: list[str],
    home: str,
    place: str,
    extra: str,
    concealed: Sequence[str] = (),
    *,
    userns: int,
) -> None:
    """Mount an overlay of directories, the uppermost first, that stores writes in `home`."""
    below = lowers[0]
    if userns >= 0:
        lowers = idmapped.lowers(lowers, f"{home}/lowers", userns)
    _own_like(f"{home}/upper", lowers[0])
    if concealed:
        opaque = conceal.USER if extra else conceal.TRUSTED
        conceal.conceal(below, f"{home}/upper", concealed, opaque, seen_at=lowers[0])
    if len(lowers) > 1:
        # All options have to fit into one page, so the layers are named by relative paths.
        directory = os.path.commonpath(lowers)
        os.chdir(directory)
        lowers = [os.path.relpath(each, directory) for each in lowers]
    data = f"lowerdir={':'.join(map(_escaped, lowers))},upperdir={_escaped(home)}/upper"
    # Volatile: without it the kernel syncs the whole upper file system when the container ends.
    # No later mount reads the upper directory, so nothing is lost by a crash.
    data += f",workdir={_escaped(home)}/work,volatile" + (f",{extra}" if extra else "")
    # Nodev: device nodes in an image must not give access to devices of the machine.
    libc.mount("overlay", place, "overlay", libc.MS_NODEV, data)


def _own_like(upper: str, lower: str) -> None:
    """Give the upper directory owner and mode of the lower one: they become those of the root."""
    top = os.stat(lower)
    # A rootless supervisor has only one user id to give, which already owns the directory.
    with contextlib.suppress(OSError):
        os.chown(upper, top.st_uid, top.st_gid)
    os.chmod(upper, stat.S_IMODE(top.st_mode))


def _escaped(path: str) -> str:
    return "".join("\\" + sign if sign in "\\:," else sign for sign in path)
