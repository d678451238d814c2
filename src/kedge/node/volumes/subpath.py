"""subPath: a part of a volume, which no link inside of it can turn into something else."""

import contextlib
import os
from pathlib import Path

from kedge.node.parts import ConfigFailure, VolumeFailure
from kedge.supervisor import libc


def find(volume: Path, subpath: str, *, make: bool) -> Path:
    """The part of the volume, made as a directory if it is missing and that is wanted."""
    place = volume / subpath
    if make and not os.path.lexists(place):
        _make(volume, subpath)
    real = place.resolve()
    if not real.is_relative_to(volume.resolve()):
        raise ConfigFailure(f'failed to prepare subPath for volumeMount "{subpath}"')
    if not real.exists():
        raise VolumeFailure("Failed", f'subPath "{subpath}" does not exist')
    return real


def _make(volume: Path, subpath: str) -> None:
    """Directories with the rights that the volume itself has, links not followed."""
    mode = volume.stat().st_mode & 0o7777 | 0o750
    at = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in Path(subpath).parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, mode, dir_fd=at)
                os.chmod(part, mode, dir_fd=at)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
    except OSError as error:
        raise ConfigFailure(
            f'failed to prepare subPath for volumeMount "{subpath}": {error.strerror}'
        ) from error
    finally:
        os.close(at)


def pin(part: Path, volume: Path, target: Path) -> Path:
    """Mount the part somewhere of its own, so that nobody can exchange it between our look and
    the start of the container."""
    opened = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        real = Path(os.readlink(f"/proc/self/fd/{opened}"))
        if not real.is_relative_to(volume.resolve()):
            raise ConfigFailure(f"subPath {part} leads out of its volume")
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            libc.unmount(str(target))
        if part.is_dir():
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        libc.mount(f"/proc/self/fd/{opened}", str(target), flags=libc.MS_BIND)
    finally:
        os.close(opened)
    return target
