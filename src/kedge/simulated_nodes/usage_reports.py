"""Reports the usage of simulated nodes and their pods, as real nodes do."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final
from zlib import crc32

import msgspec

from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock, machine_clock, usage_clock
from kedge.machinery.errors import StatusError
from kedge.metrics.frame_codec import CONTENT_TYPE, FrameReply, encode, path_of
from kedge.metrics.windows import MINUTE, TICK_SECONDS
from kedge.node.stats.publisher import ReportSchedule
from kedge.simulated_nodes.pod_usage import SimulatedPodUsage, frame
from kedge.simulated_nodes.portions import portions
from kedge.simulated_nodes.simulated_machine import SimulatedMachine

TOGETHER: Final = 10
"""Reports after which other work of the process has its turn."""
SPREAD_SECONDS: Final = 5.0
"""Seconds after a tick over which all reports are spread."""
PROMPT_NODES: Final = 100
"""Up to so many nodes report in each tick. More of them report once in a minute, as nodes on
machines of their own do, and in the next tick if a pod starts or ends."""
MOST_PER_TICK: Final = 2 * PROMPT_NODES
"""Reports of one tick at most, those first that are oldest. Thousands of pods that start together
are news on all nodes: the reports would take more of a busy machine than the pods do."""
PROMPT_SECONDS: Final = TICK_SECONDS
CALM_SECONDS: Final = MINUTE
MOST_IN_LOOP: Final = 50
"""Containers of a node whose usage is computed in the event loop."""
STILL_SECONDS: Final = 1.0
"""Seconds after which a clock that stands still is looked at again."""

Pods = Callable[[str], Iterable[SimulatedPodUsage]]
_reply = msgspec.json.Decoder(FrameReply)


class SimulatedUsageReports:
    """Reports the usage of all nodes. The owner must `run` it."""

    def __init__(self, machines: Mapping[str, SimulatedMachine], pods: Pods, clock: Clock) -> None:
        """`pods` returns the usage of the pods of a node."""
        self._machines = machines
        self._pods = pods
        self._clock = clock
        self._pace = usage_clock(clock)
        self._schedules: dict[str, ReportSchedule] = {}
        self._last_tick = 0

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            now = self._pace.now().timestamp()
            await self._pace.sleep(TICK_SECONDS - now % TICK_SECONDS)
            tick = int(self._pace.now().timestamp()) // TICK_SECONDS
            if tick > self._last_tick:
                await self.report(tick)
            else:
                # A clock that stands still lets short sleeps pass without moving.
                await machine_clock(self._clock).sleep(STILL_SECONDS)

    async def report(self, tick: int) -> None:
        """Report the usage at the end of a tick, of the nodes that are due."""
        # After a jump of the clock, every window has changed.
        is_jump, self._last_tick = tick != self._last_tick + 1, tick
        due = [each for each in self._machines.values() if self._is_due(each, tick, is_jump)]
        if not is_jump:
            due = sorted(due, key=lambda machine: machine.reported)[:MOST_PER_TICK]
        shares = list(portions(due, TOGETHER))
        for share in shares:
            # On a busy machine the last reports may be many ticks later than the first.
            tick = max(tick, int(self._pace.now().timestamp()) // TICK_SECONDS)
            self._last_tick = tick
            for machine in share:
                # Nodes may be deleted meanwhile.
                if self._machines.get(machine.name) is machine:
                    await self._send(machine, tick)
            if len(shares) > 1:
                await machine_clock(self._clock).sleep(SPREAD_SECONDS / len(shares))

    @property
    def _resolution(self) -> int:
        return PROMPT_SECONDS if len(self._machines) <= PROMPT_NODES else CALM_SECONDS

    def _is_due(self, machine: SimulatedMachine, tick: int, is_jump: bool) -> bool:
        schedule = self._schedules.get(machine.name)
        if schedule is None or not schedule.has(self._resolution):
            place = crc32(machine.name.encode())
            schedule = self._schedules[machine.name] = ReportSchedule(self._resolution, place)
        if machine.is_silent:
            return False
        news = machine.has_news or is_jump
        return schedule.is_due(tick, self._pace.monotonic(), news=news)

    async def _send(self, machine: SimulatedMachine, tick: int) -> None:
        schedule = self._schedules[machine.name]
        machine.has_news = False
        machine.reported = tick
        pods = list(self._pods(machine.name))
        make = partial(
            frame,
            (machine.name, machine.node.metadata.uid),
            machine.usage,
            pods,
            tick=tick,
            now=self._clock.now().timestamp(),
            resolution=schedule.resolution,
        )
        # Tenants decide how many containers a pod has: 0.2 ms for each whose usage has changed.
        many = sum(len(each.containers) for each in pods) > MOST_IN_LOOP
        made = await asyncio.to_thread(make) if many else make()
        path = path_of(machine.name)
        try:
            answer = await machine.client.send(
                "POST", path, body=encode(made), content=CONTENT_TYPE
            )
            schedule.accepted(_reply.decode(answer.body))
        except Unreachable as error:
            schedule.lost(str(error))
        except StatusError as error:
            # A node that was just deleted, or a server with other work.
            schedule.refused(error, self._pace.monotonic())

    def forget(self, name: str) -> None:
        """Forget the schedule of a node that is gone."""
        self._schedules.pop(name, None)
