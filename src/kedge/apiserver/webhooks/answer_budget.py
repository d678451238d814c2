"""AnswerBudget: memory for the answers of all webhooks and issuers together."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from kedge.web.body_budget import BodyBudget

MOST_BYTES: Final = 64 << 20
"""Bytes of all answers that are read or worked on. Each has at most 6 MiB, but there are as many as
requests, and the servers behind webhooks may be hostile."""


class NoMemoryForAnswer(Exception):
    """Other answers have taken the memory."""

    def __init__(self) -> None:
        super().__init__("the server has no memory left for the answers of webhooks")


class AnswerBudget:
    """Counts answers until their requests need them no more.

    Beyond the limit, the answer that has been incomplete for the longest time is given up, as with
    bodies of requests: a few webhooks with unfinished answers must not lock out the others.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._bodies = BodyBudget(most)

    @property
    def size(self) -> int:
        return self._bodies.size

    @contextmanager
    def answer(self) -> Iterator["Answer"]:
        """Give room for one answer, which is freed with the context."""
        answer = Answer(self._bodies)
        try:
            yield answer
        finally:
            answer.free()


class Answer:
    """One answer, as it arrives. Fulfils BodySender."""

    def __init__(self, bodies: BodyBudget) -> None:
        self._bodies = bodies
        self._limit = asyncio.timeout(None)
        self._is_given_up = False
        self._held = 0

    async def read(self, pieces: AsyncIterator[bytes], most: int) -> bytes | None:
        """Return the whole answer; None if it has more than `most` bytes. Raises
        NoMemoryForAnswer."""
        try:
            return await self._read(pieces, most)
        except TimeoutError:
            if self._is_given_up:
                raise NoMemoryForAnswer from None
            raise

    async def _read(self, pieces: AsyncIterator[bytes], most: int) -> bytes | None:
        # The first of two attempts may have ended in the middle.
        self._bodies.forget(self)
        self._limit = asyncio.timeout(None)
        # Not a list of pieces: small ones would take many times their content.
        content = bytearray()
        async with self._limit:
            async for piece in pieces:
                if len(content) + len(piece) > most:
                    return None
                content += piece
                self._bodies.grow(self, len(piece))
                if self._is_given_up:
                    raise NoMemoryForAnswer
        self._held = self._bodies.finish(self)
        return bytes(content)

    def refuse_body(self) -> None:
        """Give the answer up: others need its memory."""
        self._is_given_up = True
        self._bodies.forget(self)
        self._limit.reschedule(0)

    def free(self) -> None:
        self._bodies.forget(self)
        self._bodies.release(self._held)
        self._held = 0
