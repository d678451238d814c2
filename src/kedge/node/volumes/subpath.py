"""subPath: a part of a volume, which no link inside of it can turn into something else."""

import contextlib
import os
import stat
from pathlib import Path

from kedge.api.core_v1.container import VolumeMount
from kedge.node.expansion import strictly_expanded
from kedge.node.parts import ConfigFailure
from kedge.supervisor import libc


class Outside(Exception):
    """A path leads out of the volume, or nowhere. What it is says too much about the machine to be
    told to users."""


def wanted(mount: VolumeMount, env: dict[str, str]) -> str:
    """Which part of its volume a mount shows; empty for all of it. Raises ConfigFailure."""
    part = strictly_expanded(mount.subPathExpr, env) if mount.subPathExpr else mount.subPath
    if part.startswith("/"):
        raise ConfigFailure(f"error SubPath `{part}` must not be an absolute path")
    if ".." in part.split("/"):
        raise ConfigFailure(f"unable to provision SubPath `{part}`: must not contain '..'")
    return part


def make(volume: Path, part: str) -> None:
    """Make what is missing of a part as directories, with the rights of the volume itself. Raises
    Outside or OSError."""
    top = volume.resolve()
    mode = stat.S_IMODE(top.stat().st_mode)
    there, missing = _existing(top, part)
    at = _opened(there, top)
    try:
        for name in missing:
            os.mkdir(name, mode, dir_fd=at)
            # Nobody can put a link in its place that we would follow.
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=at)
            os.close(at)
            at = below
            os.fchmod(at, mode)
    finally:
        os.close(at)


def _existing(top: Path, part: str) -> tuple[Path, list[str]]:
    """How far the path is there already, and the rest."""
    names = Path(part).parts
    for split in range(len(names), 0, -1):
        found = top.joinpath(*names[:split])
        if os.path.exists(found):
            return found.resolve(), list(names[split:])
    return top, list(names)


def find(volume: Path, part: str) -> Path:
    """Where a part really is, which must be inside the volume. Raises Outside or OSError."""
    real = (volume / part).resolve(strict=True)
    if not real.is_relative_to(volume.resolve()):
        raise Outside(f"{real} is not in {volume}")
    return real


def pin(volume: Path, part: str, target: Path) -> None:
    """Mount a part at a place of its own, so that nobody can exchange it between our look and the
    start of the container. Raises Outside or OSError."""
    top = volume.resolve()
    opened = _opened(find(volume, part), top)
    try:
        _make_target(target, is_directory=stat.S_ISDIR(os.fstat(opened).st_mode))
        libc.mount(f"/proc/self/fd/{opened}", str(target), flags=libc.MS_BIND)
    finally:
        os.close(opened)


def _opened(real: Path, top: Path) -> int:
    """A descriptor that stands for a path whatever happens to it afterwards."""
    opened = os.open(real, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    # A link may have come into the way since the path was resolved: only now it is certain.
    led_to = Path(os.readlink(f"/proc/self/fd/{opened}"))
    if stat.S_ISLNK(os.fstat(opened).st_mode) or not led_to.is_relative_to(top):
        os.close(opened)
        raise Outside(f"{led_to} is not in {top}")
    return opened


def _make_target(target: Path, *, is_directory: bool) -> None:
    """An empty directory or file, with nothing of an earlier container mounted on it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        libc.unmount(str(target))
    with contextlib.suppress(FileNotFoundError):
        target.rmdir() if target.is_dir() else target.unlink()
    if is_directory:
        target.mkdir(0o750)
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
