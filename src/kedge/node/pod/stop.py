"""The stop of containers: in parallel, each after its preStop hook and in its order."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kedge.api.core_v1.pod.container import Container
from kedge.machinery.clock import machine_clock
from kedge.node.pod.actions import StopContainer
from kedge.node.pod.dependencies import PodDependencies
from kedge.node.pod.event_recorder import NORMAL, WARNING, PodEventRecorder
from kedge.node.pod.hooks import HookFailure, run_hook
from kedge.node.pod.runtime_cache import RuntimeCache
from kedge.node.pod.timeouts import with_timeout

MINIMUM_STOP_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL for every container, as in the kubelet."""


class ContainerStopper(msgspec.Struct, frozen=True):
    """Stops the containers of one pod."""

    dependencies: PodDependencies
    cache: RuntimeCache
    recorder: PodEventRecorder
    _announced: set[str] = msgspec.field(default_factory=set)
    """Containers with a Killing event."""
    _hooked: set[str] = msgspec.field(default_factory=set)
    """Containers whose preStop hook has begun; a shortened grace period does not repeat it."""

    async def stop(
        self, stops: Sequence[StopContainer], specs: Mapping[str, Container], ips: Sequence[str]
    ) -> None:
        """Stop containers; return when all have ended. Raises the first failure after that."""
        ends = {stop.name: asyncio.Event() for stop in stops}
        each = (self._stop(stop, specs.get(stop.name), ends, ips) for stop in stops)
        # A failure to stop one container does not keep the others running.
        for outcome in await asyncio.gather(*each, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _stop(
        self,
        stop: StopContainer,
        spec: Container | None,
        ends: Mapping[str, asyncio.Event],
        ips: Sequence[str],
    ) -> None:
        # Processes end in real time, so their grace periods are in real time, too.
        clock = machine_clock(self.dependencies.clock)
        deadline = clock.monotonic() + stop.grace
        if stop.container not in self._announced:
            self._announced.add(stop.container)
            self.recorder.record_container(stop.name, NORMAL, "Killing", stop.message)
        if stop.hook and spec is not None and stop.grace > 0:
            await self._pre_stop(stop, spec, ips)
        await self._wait_for((ends[name] for name in stop.after if name in ends), deadline)
        left = max(deadline - clock.monotonic(), MINIMUM_STOP_SECONDS)
        try:
            await self.dependencies.runtime.stop_container(stop.container, left)
            await self.cache.refresh(stop.container)
        finally:
            ends[stop.name].set()

    async def _pre_stop(self, stop: StopContainer, spec: Container, ips: Sequence[str]) -> None:
        handler = spec.lifecycle.preStop if spec.lifecycle is not None else None
        if handler is None or stop.container in self._hooked:
            return
        self._hooked.add(stop.container)
        hook = run_hook(
            handler,
            spec,
            stop.container,
            ip=ips[0] if ips else "",
            runtime=self.dependencies.runtime,
            clock=self.dependencies.clock,
            network=self.dependencies.network,
        )
        try:
            await with_timeout(self.dependencies.clock, stop.grace, hook)
        except HookFailure:
            # The output of the hook may hold secrets, so it is not in the event.
            self.recorder.record_container(
                stop.name, WARNING, "FailedPreStopHook", "PreStopHook failed"
            )
        except TimeoutError:
            pass

    async def _wait_for(self, before: Iterable[asyncio.Event], deadline: float) -> None:
        """Wait for the containers that end first, at most until the deadline."""
        for end in before:
            left = deadline - machine_clock(self.dependencies.clock).monotonic()
            if left <= 0:
                return
            try:
                await with_timeout(self.dependencies.clock, left, end.wait())
            except TimeoutError:
                return
