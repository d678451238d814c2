"""Asks CSI drivers again how many volumes the node can have, as often as their CSIDriver says."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.storage.storage_report import ReportedDriver
from kedge.node.storage.volume_driver import DriverError

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 10.0
"""The shortest period that a CSIDriver can have."""
_READ_SECONDS: Final = 60.0
"""How often the CSIDriver of a driver without a period is read."""


class LimitSource(Protocol):
    """The registered drivers."""

    def nodes(self) -> Sequence[ReportedDriver]: ...

    async def refresh(self, name: str) -> bool: ...


Period = Callable[[str], Awaitable[float]]
"""Returns the seconds between two questions to a driver; 0 for none. Raises VolumeFailure."""


class VolumeLimitRefresh:
    """The owner must `run` it."""

    def __init__(
        self,
        drivers: LimitSource,
        period: Period,
        write: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`write` writes the node's CSINode."""
        self._drivers = drivers
        self._period = period
        self._write = write
        self._clock = clock
        self._due: dict[str, float] = {}
        """By driver: when to look at it again."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(TICK_SECONDS)
            names = [each.name for each in self._drivers.nodes()]
            self._due = {name: at for name, at in self._due.items() if name in names}
            for name in names:
                if self._clock.monotonic() >= self._due.get(name, 0.0):
                    await self._look(name)

    async def _look(self, name: str) -> None:
        try:
            period = await self._period(name)
            if period > 0 and name in self._due and await self._drivers.refresh(name):
                await self._write()
        except (DriverError, VolumeFailure, StatusError, ValueError, OSError) as error:
            log.warning("volume limit not refreshed driver=%s error=%r", name, str(error))
            period = _READ_SECONDS
        self._due[name] = self._clock.monotonic() + (period or _READ_SECONDS)
