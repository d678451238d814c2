"""An event loop in a thread, for code without one."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Generator
from functools import cache
from typing import TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a thread of its own, while the caller waits."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="kedge-cluster", daemon=True)
        thread.start()

    def run(self, work: Awaitable[T]) -> T:
        """Return the result of a coroutine. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(_awaited(work), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield the items of an asynchronous generator, and close it."""
        try:
            while True:
                try:
                    yield self.run(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            self.run(items.aclose())


@cache
def loop_thread() -> LoopThread:
    """Return the one of this process."""
    return LoopThread()


async def _awaited(work: Awaitable[T]) -> T:
    return await work
