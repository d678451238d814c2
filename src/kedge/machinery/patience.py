"""How much work of unknown length a function may do on the event loop before it moves to a thread.

The function does not know where it runs. It asks `left`, spends, and raises PatienceError when
nothing is left; the caller on the event loop then starts it again in a thread, without a limit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

LOOP_PATIENCE: Final = 20_000
"""Cost units of CEL that the event loop waits for: some milliseconds."""


Result = TypeVar("Result")


class PatienceError(Exception):
    """The work takes longer than the event loop may wait; start it again in a thread."""


_LEFT: Final[ContextVar[list[int] | None]] = ContextVar("patience", default=None)


@contextmanager
def on_event_loop() -> Iterator[None]:
    """Limit the work of the functions that are called inside."""
    token = _LEFT.set([LOOP_PATIENCE])
    try:
        yield
    finally:
        _LEFT.reset(token)


def call_on_event_loop(function: Callable[..., Result], *arguments: object) -> Result:
    """Return the function's result, with its work limited. Every request has some calls of this
    sort, and a context manager takes three times as long."""
    token = _LEFT.set([LOOP_PATIENCE])
    try:
        return function(*arguments)
    finally:
        _LEFT.reset(token)


def left() -> int | None:
    """Return the units that are left; None if there is no limit."""
    account = _LEFT.get()
    return None if account is None else account[0]


def spend(cost: int) -> None:
    """Record units of work; PatienceError if there are none left."""
    account = _LEFT.get()
    if account is None:
        return
    account[0] -= cost
    if account[0] < 0:
        raise PatienceError("too long for the event loop")
