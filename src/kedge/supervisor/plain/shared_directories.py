"""The directories of a container's root that stand for volumes: it writes to them, and other
containers read them, at the same time or later.

A child of the supervisor merges them with the volumes while the container runs, and once more after
its end. A file in the container's directory names them and what they have in common with the
volumes. It is written before the program runs and removed by the last merge. So the supervisor that
follows one that was killed, or the machine with it, finds what was not merged.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import time
from collections.abc import Iterator
from typing import Any, Final, NoReturn, TypedDict

from kedge.supervisor.kernel import libc
from kedge.supervisor.plain import volumes
from kedge.supervisor.plain.tree_pair import MOST_ENTRIES, Common, TreePair, attributes
from kedge.supervisor.spec import BindMount

PENDING: Final = "shared.json"
"""The file of a container with directories that are not merged for the last time."""
LOCK: Final = "shared.lock"
"""A file of all containers: their merges take turns."""
_GATHER_SECONDS: Final = 0.002
"""How long changes are gathered after the first one."""
_REST: Final = 4
"""A merge is followed by a rest of so many times its length: sharing takes a fifth of a core."""
_LOOK_SECONDS: Final = 5.0
_LOOK_SECONDS_WITHOUT_NOTICE: Final = 0.5
"""Between two merges if the machine cannot tell of each change."""
_LAST_MERGES: Final = 8
"""A process that outlives its container must not keep the last merge from ending."""
_NOTICED: Final = 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x0100_0000
"""Changes of attributes and entries, of directories only."""
_READ: Final = 65_536
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class SharedDirectory(TypedDict):
    """A directory of a root that is a volume too."""

    bind: BindMount
    left_out: list[str]
    common: Common


def is_shared(bind: BindMount) -> bool:
    """Return whether a mount is a directory that is written to."""
    return not bind["read_only"] and os.path.isdir(bind["source"])


def left_out(bind: BindMount, binds: list[BindMount]) -> list[str]:
    """Return the paths below a mount at which there are others."""
    above = f"{bind['target'].rstrip('/')}/"
    return [each["target"][len(above) :] for each in binds if each["target"].startswith(above)]


def fill(bind: BindMount, others: list[BindMount], source: int, target: int) -> SharedDirectory:
    """Fill a directory of a root with the files of a volume; raises OSError."""
    outside = left_out(bind, others)
    pair = TreePair(source, target, {"": attributes(os.fstat(target))}, outside)
    pair.merge()
    return {"bind": bind, "left_out": outside, "common": pair.common}


def save(directory: str, shared: list[SharedDirectory]) -> None:
    """Remember the shared directories of a container, before its program runs."""
    passing = f"{directory}/{PENDING}.new"
    with open(passing, "w") as file:
        json.dump(shared, file)
    os.rename(passing, f"{directory}/{PENDING}")


def finish(directory: str) -> None:
    """Merge what a container has left, for the last time. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), _Shares(directory) as shares:
        shares.merge_all()
        shares.forget()


def share(directory: str, until: int) -> NoReturn:
    """Merge the shared directories of a running container; runs in a child. It ends when the
    supervisor writes to the pipe `until`, after the end of the container, or dies. Then the
    container may go on for a moment, so the next supervisor merges once more. The exit code is
    the number of an error."""
    code = 0
    try:
        libc.name_process("kedge-share")
        with _Shares(directory) as shares:
            shares.follow(until)
            shares.merge_all()
            if os.read(until, 1):
                shares.forget()
    except OSError as error:
        code = error.errno or errno.EIO
    except BaseException:
        code = errno.EIO
    os._exit(code)


class _Shares:
    """The shared directories of one container, opened."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        with open(f"{directory}/{PENDING}") as file:
            self._shared: list[SharedDirectory] = json.load(file)
        self._pairs: list[TreePair] = []
        self._opened: list[int] = []
        self._lock = -1
        self._notice = _Notice()

    def __enter__(self) -> "_Shares":
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(f"{os.path.dirname(self._directory)}/{LOCK}", flags, 0o600)
        root = os.open(f"{self._directory}/{volumes.ROOT}", _OPENED)
        self._opened.append(root)
        for each in self._shared:
            # The volume of a pod that is gone has nothing to keep.
            with contextlib.suppress(FileNotFoundError):
                self._open(root, each)
        return self

    def _open(self, root: int, shared: SharedDirectory) -> None:
        located = volumes.open_source(shared["bind"])
        try:
            source = os.open(f"/proc/self/fd/{located}", _OPENED)
        finally:
            os.close(located)
        self._opened.append(source)
        target = libc.open_in(root, shared["bind"]["target"], os.O_RDONLY | os.O_DIRECTORY)
        self._opened.append(target)
        self._pairs.append(TreePair(source, target, shared["common"], shared["left_out"]))

    def __exit__(self, *_: object) -> None:
        for descriptor in (*self._opened, self._lock):
            os.close(descriptor)
        self._notice.close()

    def follow(self, until: int) -> None:
        """Merge after each change, until the pipe has something to read or is closed."""
        waiting = select.poll()
        for descriptor in (until, self._notice.descriptor):
            if descriptor >= 0:
                waiting.register(descriptor, select.POLLIN)
        while True:
            began = time.monotonic_ns()
            self._merge()
            # A change during the merge, and those of the merge itself, are looked at again.
            if _is_over(until, (time.monotonic_ns() - began) / 1e9 * _REST):
                return
            seconds = _LOOK_SECONDS if self._notice.is_complete else _LOOK_SECONDS_WITHOUT_NOTICE
            ready = waiting.poll(seconds * 1000)
            is_over = any(descriptor == until for descriptor, _ in ready)
            if is_over or _is_over(until, _GATHER_SECONDS):
                return
            self._notice.clear()

    def merge_all(self) -> None:
        """Merge until nothing is left to do."""
        for _ in range(_LAST_MERGES):
            if not self._merge():
                return

    def forget(self) -> None:
        """Forget the directories: they are merged for the last time."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._directory}/{PENDING}")

    def _merge(self) -> bool:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            changed = [pair.merge(self._notice.watch) for pair in self._pairs]
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        if any(changed) and os.path.isdir(self._directory):
            for shared, pair in zip(self._shared, self._pairs, strict=False):
                shared["common"] = pair.common
            save(self._directory, self._shared)
        return any(changed)


class _Notice:
    """Tells of changes in directories, by inotify. A machine may have too few watches."""

    def __init__(self) -> None:
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self.descriptor = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self.is_complete = self.descriptor >= 0

    def watch(self, directory: int) -> None:
        """Tell of changes of a directory from now on."""
        if self.is_complete:
            path = f"/proc/self/fd/{directory}".encode()
            watch = self._libc.inotify_add_watch(self.descriptor, path, _NOTICED)
            self.is_complete = watch >= 0

    def clear(self) -> None:
        """Discard the events that have arrived."""
        with contextlib.suppress(BlockingIOError):
            while self.descriptor >= 0 and os.read(self.descriptor, _READ):
                pass

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def _is_over(pipe: int, seconds: float) -> bool:
    """Wait until a pipe has something to read or is closed, for some time at most."""
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def pending(containers: str) -> Iterator[str]:
    """Yield the directories of containers that were not merged for the last time."""
    with contextlib.suppress(FileNotFoundError), os.scandir(containers) as entries:
        for each in entries:
            if os.path.exists(f"{each.path}/{PENDING}"):
                yield each.path


def reason_of(code: int) -> str:
    """Return why a child could not go on, by its exit code."""
    if code == errno.EFBIG:
        return f"one has more than {MOST_ENTRIES} files"
    return os.strerror(code).lower() if code > 0 else "the process that shares them was killed"
