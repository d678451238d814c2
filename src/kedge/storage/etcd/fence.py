"""CreationFence: keeps creations without an answer from happening later.

A member that is stuck may go on with a request long after the server has left it, and repeated the
request at another member. That does no harm to an update: its comparison names a revision, which no
key has twice. But "the key does not exist" is true again once the object was deleted, and a deleted
object would come back. So each creation compares a key of this server, too, and the server writes
that key before it repeats a creation.
"""

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Final

from kedge.storage.store import RevisionConflict, StoreEntry, StoreError

PREFIX: Final = "/kedge/creations/"


class CreationFence:
    """The key and its revision, which is 0 until a creation must be repeated."""

    def __init__(self, write: Callable[[str, int], Awaitable[StoreEntry]]) -> None:
        """`write` writes the key if it has that revision."""
        self.key = f"{PREFIX}{token_hex(8)}"
        self.revision = 0
        self._write = write
        self._moving = asyncio.Lock()
        self._failure: StoreError | None = None
        """Why the key was last not written."""

    async def move(self, since: int) -> None:
        """Return when no creation can happen any more that compares this revision; raises
        StoreError. Those that wait while writing the key fails do not each try as long again."""
        before = self._failure
        async with self._moving:
            if self._failure is not None and self._failure is not before and self.revision == since:
                raise self._failure
            try:
                await self._move(since)
            except StoreError as error:
                self._failure = error
                raise

    async def _move(self, since: int) -> None:
        while self.revision == since:
            try:
                self.revision = (await self._write(self.key, since)).revision
            except RevisionConflict as conflict:
                # An administrator has deleted the key, or written it.
                since = self.revision = conflict.current.revision if conflict.current else 0
