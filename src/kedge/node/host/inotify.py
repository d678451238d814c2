"""Waiting for changes of files with inotify(7) instead of polling."""

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_MODIFY: Final = 0x2
_CLOSE_WRITE: Final = 0x8
_MOVE_SELF: Final = 0x800
_ANY: Final = _MODIFY | _CLOSE_WRITE | _MOVE_SELF
_HEAD: Final = struct.Struct("iIII")
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """One inotify descriptor for all watched files. If the machine has no descriptors or watches
    left, events are never set: callers must also poll at a low rate."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._watches: dict[int, set[asyncio.Event]] = {}

    @contextmanager
    def watching(self, path: str, event: asyncio.Event) -> Iterator[None]:
        """Set the event on every change of the file while the context is open."""
        watch = self._watch(path)
        waiting = self._watches.setdefault(watch, set())
        waiting.add(event)
        try:
            yield
        finally:
            waiting.discard(event)
            if not waiting and self._watches.pop(watch, None) is not None and watch >= 0:
                _libc.inotify_rm_watch(self._descriptor, watch)

    def close(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _watch(self, path: str) -> int:
        if self._descriptor < 0:
            self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._descriptor < 0:
                return -1
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        return int(_libc.inotify_add_watch(self._descriptor, os.fsencode(path), _ANY))

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._descriptor, 65_536)
            at = 0
            while at < len(data):
                watch, _, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                for event in self._watches.get(watch, ()):
                    event.set()
