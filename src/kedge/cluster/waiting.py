"""Waits until an object is in a state, by watching it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import NamedTuple

from kedge.cluster.conditions import State, check, is_reached
from kedge.cluster.objects import KubeObject, ObjectApi, ObjectEvent, ObjectRef
from kedge.machinery.clock import SystemClock
from kedge.machinery.errors import StatusError


class LastSeen(NamedTuple):
    """The object as it was last seen; None if it did not exist."""

    object: KubeObject | None
    is_reached: bool


async def until(
    events: AsyncGenerator[ObjectEvent, None], timeout: float | None
) -> AsyncGenerator[ObjectEvent, None]:
    """Yield events for so many seconds.

    Not in one `asyncio.timeout`: a caller may continue a generator in another task.
    """
    clock = SystemClock()
    deadline = None if timeout is None else clock.monotonic() + timeout
    async with contextlib.aclosing(events):
        while True:
            left = None if deadline is None else deadline - clock.monotonic()
            try:
                event = await asyncio.wait_for(anext(events), left)
            except (TimeoutError, StopAsyncIteration):
                return
            yield event


async def wait_for(api: ObjectApi, ref: ObjectRef, state: State, timeout: float) -> LastSeen:
    """Return the object when it is in the state, or as it is after so many seconds."""
    check(state)
    last = LastSeen(None, is_reached=False)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            while not last.is_reached:
                last = await _watch_once(api, ref, state)
    if last.is_reached:
        return last
    found = await api.find(ref)
    return LastSeen(found, is_reached(state, found))


async def _watch_once(api: ObjectApi, ref: ObjectRef, state: State) -> LastSeen:
    """List the object, then watch it until it is in the state or the server ends the watch."""
    selection = {"fieldSelector": f"metadata.name={ref.name}"}
    items, version = await api.list(ref.resource, ref.namespace, selection)
    found = items[0] if items else None
    if is_reached(state, found):
        return LastSeen(found, is_reached=True)
    events = api.watch(ref.resource, ref.namespace, {**selection, "resourceVersion": version})
    async with contextlib.aclosing(events):
        try:
            async for event in events:
                found = None if event.type == "DELETED" else event.object
                if is_reached(state, found):
                    # A deleted object is returned as it was at last.
                    return LastSeen(event.object, is_reached=True)
        except StatusError as error:
            if error.code != 410:
                raise
    return LastSeen(found, is_reached=False)
