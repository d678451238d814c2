"""A configuration file that may change while the server runs."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from kedge.apiserver import configuration_file
from kedge.machinery.clock import Clock

CHECK_SECONDS: Final = 2.0
"""How often the file is looked at."""
AGAIN_SECONDS: Final = 60.0
"""After how long a change that could not be used yet is tried again."""
T = TypeVar("T")


class FollowedFile:
    """Notices changes of a file by its identity, size and time."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._seen = _state(path)

    def read(self, parse: Callable[[Any], T]) -> T:
        """Return the parsed document; ConfigurationFileError if the file cannot be used."""
        return configuration_file.read(self._path, parse)

    async def follow(self, changed: Callable[[], Awaitable[bool]]) -> None:
        """Call `changed` after each change, again later if it returns False. Runs until
        cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            state = _state(self._path)
            if state == self._seen or state is None:
                continue
            if await changed():
                self._seen = state
            else:
                await self._clock.sleep(AGAIN_SECONDS)


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what changes with the content; None while there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
