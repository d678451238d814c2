"""BlockingClock and BlockingFaults: AsyncClock and AsyncFaults for code without an event loop."""

import builtins
from datetime import datetime
from typing import Unpack

from kedge.api.testing.fault_rule import FaultRule
from kedge.cluster.controls import AsyncClock, AsyncFaults, FaultFields
from kedge.cluster.loop_thread import loop_thread


class BlockingClock:
    """The time of the cluster. Processes in containers keep the machine's time."""

    def __init__(self, clock: AsyncClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        """Return the time."""
        return loop_thread().run(self._clock.now())

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Move the clock forward; returns the new time."""
        work = self._clock.advance(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return loop_thread().run(work)

    def freeze(self) -> datetime:
        """Stop the clock; returns its time."""
        return loop_thread().run(self._clock.freeze())

    def resume(self) -> datetime:
        """Let the clock continue; returns its time."""
        return loop_thread().run(self._clock.resume())


class BlockingFaults:
    """The rules by which requests fail on purpose, and containers that end so."""

    def __init__(self, faults: AsyncFaults) -> None:
        self._faults = faults

    def add(self, **fields: Unpack[FaultFields]) -> FaultRule:
        """Add a rule: `add(verbs=["update"], resource="pods/status", code=409, times=2)`."""
        return loop_thread().run(self._faults.add(**fields))

    def oom_kill(self, pod: str, container: str = "", *, namespace: str = "") -> None:
        """Kill a container as if it had used up its memory; the first one if none is named."""
        loop_thread().run(self._faults.oom_kill(pod, container, namespace=namespace))

    def list(self) -> builtins.list[FaultRule]:
        """Return the rules, each with the number of requests that it has fit."""
        return loop_thread().run(self._faults.list())

    def remove(self, rule: FaultRule | str) -> None:
        """Remove a rule."""
        loop_thread().run(self._faults.remove(rule))

    def clear(self) -> None:
        """Remove all rules."""
        loop_thread().run(self._faults.clear())
