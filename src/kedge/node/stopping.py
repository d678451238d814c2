"""Stopping: containers end side by side, each after its preStop hook and when its turn has come."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kedge.api.core_v1.pod.container import Container
from kedge.node.hooks import HookFailure, run_hook
from kedge.node.observed import Observations
from kedge.node.parts import Parts
from kedge.node.plan import Stop
from kedge.node.telling import NORMAL, WARNING, Telling
from kedge.node.waits import within

MINIMUM = 2.0
"""Seconds that every container gets between the signal and the end."""


@dataclass(frozen=True)
class Stopping:
    """Stops the containers of one pod."""

    parts: Parts
    observations: Observations
    telling: Telling
    _told: set[str] = field(default_factory=set)
    """Containers of which it has been told that they are stopped."""
    _hooked: set[str] = field(default_factory=set)
    """Containers whose preStop hook has been begun: it is not done twice."""

    async def stop(
        self, stops: Sequence[Stop], specs: Mapping[str, Container], ips: Sequence[str]
    ) -> None:
        """Returns when all have ended."""
        ends = {stop.name: asyncio.Event() for stop in stops}
        each = (self._stop(stop, specs.get(stop.name), ends, ips) for stop in stops)
        # One that cannot be stopped is no reason to let the others run.
        for outcome in await asyncio.gather(*each, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _stop(
        self,
        stop: Stop,
        spec: Container | None,
        ends: Mapping[str, asyncio.Event],
        ips: Sequence[str],
    ) -> None:
        clock = self.parts.clock
        deadline = clock.monotonic() + stop.grace
        if stop.container not in self._told:
            self._told.add(stop.container)
            self.telling.of_container(stop.name, NORMAL, "Killing", stop.message)
        if stop.hook and spec is not None and stop.grace > 0:
            await self._pre_stop(stop, spec, ips)
        await self._turn((ends[name] for name in stop.after if name in ends), deadline)
        left = max(deadline - clock.monotonic(), MINIMUM)
        try:
            await self.parts.runtime.stop_container(stop.container, left)
            await self.observations.refresh(stop.container)
        finally:
            ends[stop.name].set()

    async def _pre_stop(self, stop: Stop, spec: Container, ips: Sequence[str]) -> None:
        handler = spec.lifecycle.preStop if spec.lifecycle is not None else None
        if handler is None or stop.container in self._hooked:
            return
        self._hooked.add(stop.container)
        hook = run_hook(
            handler,
            spec,
            stop.container,
            ip=ips[0] if ips else "",
            runtime=self.parts.runtime,
            clock=self.parts.clock,
        )
        try:
            await within(self.parts.clock, stop.grace, hook)
        except HookFailure:
            # What the hook said may hold secrets, so it is not in the event.
            self.telling.of_container(stop.name, WARNING, "FailedPreStopHook", "PreStopHook failed")
        except TimeoutError:
            pass

    async def _turn(self, before: Iterable[asyncio.Event], deadline: float) -> None:
        """Wait for those who go first, as long as there is time."""
        for end in before:
            left = deadline - self.parts.clock.monotonic()
            if left <= 0:
                return
            try:
                await within(self.parts.clock, left, end.wait())
            except TimeoutError:
                return
