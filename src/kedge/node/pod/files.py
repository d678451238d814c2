"""The directories of pods, and the small files that every pod has."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.supervisor.files import removal

_GONE: Final = "..gone-"
"""Prefix of directories that are being deleted."""
_REMOVALS: Final = ThreadPoolExecutor(1, "pod-removal")


class PodFiles:
    """The paths of pods: pods/<uid> for their files, logs/<pod> for their logs."""

    def __init__(self, pods: Path, logs: Path) -> None:
        self._pods = pods
        self._logs = logs
        self._has_swept = False

    def directory(self, uid: str) -> Path:
        return self._pods / uid

    def logs(self, pod: Pod) -> Path:
        meta = pod.metadata
        return self._logs / f"{meta.namespace}_{meta.name}_{meta.uid}"

    def uids(self) -> set[str]:
        """Return the uids of pods with a directory of either kind."""
        found = {each.name for each in _entries(self._pods) if not each.name.startswith(_GONE)}
        return found | {entry.name.rpartition("_")[2] for entry in _entries(self._logs)}

    def make(self, pod: Pod) -> None:
        for path in (self.directory(pod.metadata.uid), self.logs(pod)):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_hosts(self, uid: str, content: str) -> Path:
        """Write the pod's /etc/hosts, in place, so that containers which have mounted it see the
        change.

        A container may hold a lease on the file (F_SETLEASE). An ordinary open would then wait for
        45 s and block all pods of the node. The file of such a pod is left unchanged.
        """
        path = self.directory(uid) / "etc-hosts"
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(BlockingIOError):
            with open(os.open(path, flags, 0o644), "w") as file:
                file.truncate()
                file.write(content)
            path.chmod(0o644)
        return path

    def hosts(self, uid: str) -> Path:
        return self.directory(uid) / "etc-hosts"

    def termination_log(self, uid: str, container: str, attempt: int) -> Path:
        return self.directory(uid) / f"termination-log.{container}.{attempt}"

    def make_termination_log(self, uid: str, container: str, attempt: int) -> Path:
        """Create the file for the termination message, writable by every user of the container."""
        path = self.termination_log(uid, container, attempt)
        path.touch()
        path.chmod(0o666)
        return path

    def drop_termination_log(self, uid: str, container: str, attempt: int) -> None:
        self.termination_log(uid, container, attempt).unlink(missing_ok=True)

    def resize_state(self, uid: str) -> Path:
        return self.directory(uid) / "resize.json"

    def remove(self, uid: str) -> None:
        """Remove all files of a pod. A directory with a mount in it is left until it is unmounted:
        emptying it would delete the content of the volume."""
        for entry in _entries(self._logs):
            if entry.name.endswith(f"_{uid}"):
                self._throw_away(Path(entry.path))
        directory = self.directory(uid)
        if not any(_mounted_below(directory)):
            self._throw_away(directory)
        if not self._has_swept:
            self._has_swept = True
            self._sweep()

    def _throw_away(self, directory: Path) -> None:
        """Rename the directory, then delete it. Deletion may take long, since a container may write
        any amount to its termination log."""
        gone = self._pods / f"{_GONE}{directory.name}"
        try:
            directory.rename(gone)
        except FileNotFoundError:
            return
        except OSError:
            # Perhaps a deletion of the same pod has failed before.
            _REMOVALS.submit(removal.remove_all, gone)
            gone = directory
        _REMOVALS.submit(removal.remove_all, gone)

    def _sweep(self) -> None:
        """Delete what earlier agents have left."""
        for entry in _entries(self._pods):
            if entry.name.startswith(_GONE):
                _REMOVALS.submit(removal.remove_all, entry.path)


class WritablePaths:
    """The directories in which containers write outside of volumes."""

    def __init__(self, pods: Path, runtime: Path) -> None:
        self._pods = pods
        self._runtime = runtime

    def layers(self, container: str) -> list[Path]:
        """Return the writable layers of a container."""
        # Without root, the image `host` has one layer for each directory of the machine.
        home = self._runtime / "containers" / container
        return [home / name for name in ("upper", "parts", "shown")]

    def shared(self, uid: str, sandboxes: Iterable[str]) -> list[Path]:
        """Return the directories with the small files of a pod: hosts, termination logs,
        resolv.conf."""
        return [self._pods / uid, *(self._runtime / "sandboxes" / each for each in sandboxes)]


def _entries(directory: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _mounted_below(directory: Path) -> Iterator[str]:
    prefix = f"{directory}/"
    with open("/proc/self/mountinfo", errors="surrogateescape") as mounts:
        for line in mounts:
            where = line.split(" ", 5)[4]
            if where.startswith(prefix):
                yield where
