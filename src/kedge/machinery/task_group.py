"""A TaskGroup that leaves no garbage behind when it is cancelled or fails, and a task outside."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from traceback import walk_tb
from types import TracebackType
from typing import Any, Final

_EXIT: Final = asyncio.TaskGroup.__aexit__.__code__


class TaskGroup(asyncio.TaskGroup):
    """For tasks of requests and watches, which end by thousands.

    Before Python 3.13, the frame of `__aexit__` refers to the errors that it caught and raises, and
    they refer to the frame. So a cancelled watch would keep its connection with all buffers in
    memory until the next search for garbage.
    """

    async def __aexit__(
        self,
        et: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(et, exc, tb)
        except BaseException as error:
            for frame, _ in walk_tb(error.__traceback__):
                if frame.f_code is _EXIT:
                    frame.clear()
            error.__traceback__ = None
            raise
        finally:
            exc = tb = None
            # A task that was cancelled keeps its error, whose frames have this group.
            self._parent_task = None


class OwnedTask:
    """A task of an object that is opened and closed by methods, which a group cannot own."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        # The creator of this object owns the task: close() ends it. It works for no tenant and
        # under no guard, though a request may have been the reason to start it.
        self._task = asyncio.get_running_loop().create_task(work, context=Context())

    def cancel(self) -> None:
        """Let the task end soon."""
        self._task.cancel()

    async def close(self) -> None:
        """End the task, and wait for its end."""
        self._task.cancel()
        await asyncio.wait([self._task])
