"""hostPath: a directory or file of the machine."""

import os
import stat
from collections.abc import Callable
from typing import Final

from kedge.api.core_v1.volume.volume import HostPathVolumeSource
from kedge.node.pod.dependencies import VolumeFailure

_KINDS: Final[dict[str, tuple[Callable[[int], bool], str]]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def check(source: HostPathVolumeSource) -> None:
    """Check the type of the path; create it for the types with OrCreate."""
    kind = source.type or ""
    if kind == "":
        return
    if kind not in _KINDS:
        raise VolumeFailure("FailedMount", f"{kind} is an invalid volume type")
    fits, words = _KINDS[kind]
    if kind.endswith("OrCreate") and not os.path.exists(source.path):
        _make(source.path, kind)
    try:
        mode = os.stat(source.path).st_mode
    except OSError:
        mode = 0
    if not fits(mode):
        raise VolumeFailure(
            "FailedMount", f"hostPath type check failed: {source.path} is not {words}"
        )


def _make(path: str, kind: str) -> None:
    try:
        if kind == "DirectoryOrCreate":
            os.makedirs(path, 0o755, exist_ok=True)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
            os.close(os.open(path, flags, 0o644))
    except OSError as error:
        # The messages are the kubelet's.
        what = "mkdir" if kind == "DirectoryOrCreate" else "open"
        reason = os.strerror(error.errno or 0).lower()
        raise VolumeFailure("FailedMount", f"{what} {path}: {reason}") from error
