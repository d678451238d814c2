"""subPath: a part of a volume, protected against links that containers create."""

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from kedge.api.core_v1.pod.container import VolumeMount
from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.pod.environment.expansion import expand_strictly
from kedge.supervisor.files import beneath


def subpath_of(mount: VolumeMount, env: dict[str, str]) -> str:
    """Return the subPath of a mount; empty for the whole volume. Raises ConfigFailure."""
    part = expand_strictly(mount.subPathExpr, env) if mount.subPathExpr else mount.subPath
    if part.startswith("/"):
        raise ConfigFailure(f"error SubPath `{part}` must not be an absolute path")
    if ".." in part.split("/"):
        raise ConfigFailure(f"unable to provision SubPath `{part}`: must not contain '..'")
    return part


def make(volume: Path, part: str) -> None:
    """Create missing directories of a subPath, with the mode of the volume. Raises OSError, also if
    the subPath leads out of the volume. Users must not see its message, which reveals paths of the
    machine."""
    with beneath.directory(volume) as top:
        mode = stat.S_IMODE(os.fstat(top).st_mode)
        names = [name for name in part.split("/") if name not in ("", ".")]
        at = os.dup(top)
        try:
            for number in range(1, len(names) + 1):
                below = _below(top, at, names[:number], mode)
                os.close(at)
                at = below
        finally:
            os.close(at)


def _below(top: int, at: int, names: Sequence[str], mode: int) -> int:
    """Open the last of these nested directories, starting at the volume; create missing ones."""
    with contextlib.suppress(FileNotFoundError):
        return beneath.locate(top, "/".join(names), across_mounts=True)
    os.mkdir(names[-1], mode, dir_fd=at)
    # A link that a container creates in the meantime is not followed.
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    made = os.open(names[-1], flags, dir_fd=at)
    os.fchmod(made, mode)
    return made


def exists(volume: Path, part: str) -> bool:
    """Return whether the subPath exists. Raises OSError if it leads out of the volume.

    This is only for an early, readable error. Another container may replace directories by links
    until the container starts, so the supervisor resolves the subPath again, by the same rules,
    when it mounts it.
    """
    with beneath.directory(volume) as top:
        try:
            os.close(beneath.locate(top, part, across_mounts=True))
        except FileNotFoundError:
            return False
    return True
