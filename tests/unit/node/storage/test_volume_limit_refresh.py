"""How often drivers are asked how many volumes a node can have."""

import asyncio
from collections.abc import Sequence

from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.storage.storage_report import ReportedDriver
from kedge.node.storage.volume_limit_refresh import VolumeLimitRefresh
from kedge.testing.clock import FakeClock


class Drivers:
    """Two drivers, whose limits change each time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.periods = {"often": 20, "never": 0}
        self.is_down = False
        self.writes = 0

    def nodes(self) -> Sequence[ReportedDriver]:
        return [ReportedDriver(name, "id") for name in self.periods]

    async def refresh(self, name: str) -> bool:
        self.asked.append(name)
        return True

    async def period(self, name: str) -> float:
        if self.is_down:
            raise VolumeFailure("FailedMount", "no server")
        return float(self.periods[name])

    async def write(self) -> None:
        self.writes += 1


async def pass_time(drivers: Drivers, clock: FakeClock, seconds: int) -> None:
    refresh = VolumeLimitRefresh(drivers, drivers.period, drivers.write, clock)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(refresh.run())
        for _ in range(seconds):
            await clock.advance(1)
        running.cancel()


async def test_a_driver_is_asked_in_its_period_and_others_never() -> None:
    drivers, clock = Drivers(), FakeClock()
    await pass_time(drivers, clock, 101)
    # The first look is at ten seconds: the driver has just registered.
    assert drivers.asked == ["often"] * 4
    assert drivers.writes == 4


async def test_a_failure_is_tried_again_later() -> None:
    drivers, clock = Drivers(), FakeClock()
    drivers.is_down = True
    await pass_time(drivers, clock, 100)
    assert drivers.asked == []
    drivers.is_down = False
    await pass_time(drivers, clock, 100)
    assert drivers.asked == ["often"] * 4
