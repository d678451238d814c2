"""WriteGuard: a condition that the store checks together with each write of the current task.

A leader checks its Lease before it writes. If its process is stopped just then, another server may
lead when the write is sent. With a guard the store itself refuses the write.
"""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

T = TypeVar("T")


class WriteGuard:
    """A key of the store, and the revision at which it must be."""

    __slots__ = ("is_lost", "key", "revision")

    def __init__(self, key: str, revision: int) -> None:
        self.key = key
        self.revision = revision
        self.is_lost = False
        """Whether a write was refused, as all further ones will be."""


_GUARD: Final[ContextVar[WriteGuard | None]] = ContextVar("guard", default=None)


@contextmanager
def guarded_by(guard: WriteGuard | None) -> Iterator[None]:
    """Let the writes inside happen only while the guard holds."""
    token = _GUARD.set(guard)
    try:
        yield
    finally:
        _GUARD.reset(token)


async def guarded(guard: WriteGuard | None, work: Awaitable[T]) -> T:
    """Return the result of work whose writes happen only while the guard holds."""
    with guarded_by(guard):
        return await work


def current_guard() -> WriteGuard | None:
    """Return the guard of the current task; None for most tasks."""
    return _GUARD.get()
