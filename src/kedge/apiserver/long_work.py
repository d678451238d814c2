"""Work that is as long as what a client sends, done beside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LONG: Final = 32 << 10
"""Bytes from which on work goes to a thread. Reading, fitting and judging so much takes ten to
twenty milliseconds at worst; going to a thread and back takes a twentieth of one."""
THREADS: Final = 2
"""How many pieces of long work are done at once; others wait in turn, small requests do not."""

Result = TypeVar("Result")


class LongWork:
    """Threads for pure functions of large documents.

    A thread does not make the work faster, for it shares the interpreter with the event loop, but
    it makes it divisible: the interpreter changes threads every five milliseconds, so that requests
    of others go on meanwhile. There is no deadline, since a thread cannot be ended; what is done
    here takes time in proportion to its input, and the input is bounded by the size of a body.

    Only functions of their arguments belong here. Nothing that reads the watch cache, takes a lock
    or starts a task does: those are the event loop's, and rely on nothing happening meanwhile.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "long-work")

    async def run(self, weight: int, function: Callable[..., Result], *arguments: object) -> Result:
        """Return the function's result; `weight` is how many bytes its arguments are made of."""
        if weight < LONG:
            return function(*arguments)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)
