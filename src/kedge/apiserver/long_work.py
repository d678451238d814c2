"""Threads for work whose length depends on a client's input."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from kedge.machinery.clock import Clock
from kedge.machinery.patience import PatienceError, call_on_event_loop
from kedge.machinery.tenant_threads import TenantThreads
from kedge.machinery.turns import TurnShare, next_turn

LONG: Final = 16 << 10
"""Work on at least so many bytes goes to a thread. Decoding and validating so much takes five to
ten milliseconds at worst; handing work to a thread takes a twentieth of one."""
THREADS: Final = 2
"""How many threads there are. Tenants take turns in them; small requests do not wait."""

SERVER_THREADS: Final = 6
"""Threads for everything else, such as name lookup, files and long expressions."""
EXPRESSION_THREADS: Final = 2
"""How many of them may evaluate expressions of tenants at the same time."""

SHARE_SECONDS: Final = 0.01
"""How long shorter work of all requests together may hold the event loop in one turn."""

Result = TypeVar("Result")


async def off_loop(
    weight: int, function: Callable[..., Result], *arguments: object, **options: object
) -> Result:
    """Return the function's result, computed in a thread if `weight`, the bytes of its arguments,
    is large. For answers of other servers, which `LongWork` does not queue with requests."""
    if weight < LONG:
        return function(*arguments, **options)
    return await asyncio.to_thread(function, *arguments, **options)


def bound_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Let `asyncio.to_thread` use few threads, in which tenants take turns."""
    threads = TenantThreads(SERVER_THREADS, "server", for_tenants=EXPRESSION_THREADS)
    loop.set_default_executor(threads)


class LongWork:
    """Threads for pure functions of large documents.

    A thread does not make the work faster, because it shares the interpreter with the event
    loop. But the interpreter switches threads every five milliseconds, so other requests
    continue. The deadline is that of the request: when it has passed, work that waits for a thread
    is dropped. Work that has begun goes on, because a thread cannot be stopped, but it takes time
    in proportion to its input, and the size of a body bounds the input.

    Only pure functions may run here. Code that reads the watch cache, takes a lock or starts a
    task belongs to the event loop, where nothing else runs at the same time.
    """

    def __init__(self, clock: Clock) -> None:
        self._share = TurnShare(clock.monotonic, SHARE_SECONDS)
        self._threads = TenantThreads(THREADS, "long-work", for_tenants=THREADS)

    async def run(self, weight: int, function: Callable[..., Result], *arguments: object) -> Result:
        """Return the function's result; `weight` is how many bytes its arguments are made of."""
        if weight < LONG:
            # All that wait try again in the next turn, in order. Waking one per turn would be too
            # slow: while threads work, the loop waits for the interpreter in each turn.
            while not self._share.is_left():
                await next_turn()
            try:
                return call_on_event_loop(function, *arguments)
            except PatienceError:
                pass  # An expression of the client takes longer than its size lets expect.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)
