"""What to mount where so that a container sees its image and may write to it."""

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kedge.node.images import layers
from kedge.node.images.image import Image
from kedge.node.images.layers import Found, Parts

MS_NODEV: Final = 4
_LONGEST_OPTIONS: Final = 4095
"""What the kernel reads of a mount's options: one page."""

PRIVATE_PLACES: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm")
"""Where programs want to write even when the rest is read-only."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Layers under a directory that takes what is written."""

    directory: Path
    """To be the working directory of whoever mounts: the layers are named from there, since all
    of them have to fit into one page."""
    lowers: tuple[str, ...]
    """The uppermost first."""
    upper: Path
    work: Path
    user_xattr: bool = False
    """Mounted inside a user namespace, where only such attributes can be read."""
    hidden: tuple[Path, ...] = ()
    """Paths as the container sees them that it must not see into: cover each one with an empty
    file system, or a file with an empty file."""

    flags = MS_NODEV
    """Devices that an image brings are not to be devices: a container's own come by other ways."""

    def options(self) -> str:
        """What mount(2) is told; ValueError if it is too much."""
        lowers = ":".join(_escaped(lower).replace(":", "\\:") for lower in self.lowers)
        text = f"lowerdir={lowers},upperdir={_escaped(self.upper)},workdir={_escaped(self.work)}"
        text += ",userxattr" if self.user_xattr else ""
        if len(os.fsencode(text)) > _LONGEST_OPTIONS:
            raise ValueError("the image has too many layers to be mounted")
        return text

    def prepare(self) -> None:
        """Make the directories that take what is written. The root then looks like the image's."""
        self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.upper.mkdir(parents=True, exist_ok=True)
        top = os.stat(self.directory / self.lowers[0])
        if os.geteuid() == 0:
            os.chown(self.upper, top.st_uid, top.st_gid)
        os.chmod(self.upper, stat.S_IMODE(top.st_mode))


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """The machine's own files, bound recursively and read-only, with some private places.

    Kernels do not let an ordinary user lay an overlay over `/`.
    """

    source: Path
    private: tuple[str, ...]
    """Where each container gets an empty file system of its own."""
    hidden: tuple[Path, ...] = ()
    """As for Overlay."""


def rootfs(
    image: Image, writable: Path, *, privileged: bool, hidden: Sequence[Path] = ()
) -> Overlay | ReadOnly:
    """How a container gets its root. `writable` is a directory of its own; `hidden` are places of
    the machine that nobody is to see who sees the machine, such as kedge's own state."""
    if image.is_host and not privileged:
        return ReadOnly(Path("/"), PRIVATE_PLACES, tuple(hidden))
    upper, work = writable / "upper", writable / "work"
    if image.is_host:
        return Overlay(Path("/"), ("/",), upper, work, hidden=tuple(hidden))
    directory = image.layers[0].parent
    lowers = tuple(os.path.relpath(layer, directory) for layer in image.layers)
    return Overlay(directory, lowers, upper, work, user_xattr=not privileged)


def _escaped(path: Path | str) -> str:
    return str(path).replace("\\", "\\\\").replace(",", "\\,")


def copy(image: Image, target: Path) -> None:
    """Copy an image into a new directory, for where nothing can be mounted. Takes time."""
    stack = [str(layer) for layer in image.layers]
    top = Found(stack[0], os.stat(stack[0]))
    target.mkdir(parents=True)
    _copy_below(stack, (), str(target))
    _dress(top, str(target))


def _copy_below(stack: Sequence[str], parts: Parts, target: str) -> None:
    for name, found in layers.children(stack, parts).items():
        to = f"{target}/{name}"
        if found.is_directory:
            os.mkdir(to, 0o700)
            _copy_below(stack, (*parts, name), to)
        elif found.is_link:
            os.symlink(os.readlink(found.path), to)
        elif found.is_file:
            shutil.copyfile(found.path, to)
        elif os.geteuid() == 0:
            os.mknod(to, found.status.st_mode, found.status.st_rdev)
        else:
            continue
        _dress(found, to)


def _dress(found: Found, to: str) -> None:
    if os.geteuid() == 0:
        os.chown(to, found.status.st_uid, found.status.st_gid, follow_symlinks=False)
    if not found.is_link:
        os.chmod(to, stat.S_IMODE(found.status.st_mode))
    moment = found.status.st_mtime_ns
    os.utime(to, ns=(moment, moment), follow_symlinks=False)
