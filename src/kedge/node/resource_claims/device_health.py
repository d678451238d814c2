"""The health of devices, as drivers report it."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kedge.dra import messages as m

DEFAULT_SECONDS: Final = 30.0
"""Seconds after which a reported health is unknown, unless the driver sets another time."""
LONGEST_MESSAGE: Final = 1024
MOST_DEVICES: Final = 4096
"""Devices of one driver whose health is kept."""

HEALTH_NAMES: Final = {m.HEALTHY_DEVICE: "Healthy", m.UNHEALTHY_DEVICE: "Unhealthy"}
UNKNOWN: Final = "Unknown"

DeviceName = tuple[str, str]
"""Pool and device."""


class ReportedHealth(msgspec.Struct, frozen=True):
    """The health of one device."""

    health: str = UNKNOWN
    message: str = ""
    seconds: float = DEFAULT_SECONDS
    at: float = 0.0

    def differs(self, other: "ReportedHealth") -> bool:
        return (self.health, self.message, self.seconds) != (
            other.health,
            other.message,
            other.seconds,
        )


class DeviceHealthBook:
    """The latest reports of all drivers."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns monotonic seconds."""
        self._now = now
        self._drivers: dict[str, dict[DeviceName, ReportedHealth]] = {}

    def of(self, driver: str, pool: str, device: str) -> ReportedHealth:
        """Return the health of a device; unknown if the report is too old."""
        found = self._drivers.get(driver, {}).get((pool, device))
        if found is None or self._now() - found.at > found.seconds:
            return ReportedHealth()
        return found

    def update(self, driver: str, report: Sequence[m.DeviceHealth]) -> set[DeviceName]:
        """Take over a complete report; return the devices whose health has changed. A device that
        is not in the report keeps its health until that is too old."""
        known = self._drivers.setdefault(driver, {})
        changed: set[DeviceName] = set()
        for each in report[:MOST_DEVICES]:
            device = each.device or m.DeviceIdentifier()
            name = device.pool_name, device.device_name
            reported = self._reported(each)
            if name not in known and len(known) >= MOST_DEVICES:
                continue
            if reported.differs(known.get(name, ReportedHealth())):
                changed.add(name)
            known[name] = reported
        return changed

    def expire(self) -> dict[str, set[DeviceName]]:
        """Forget reports that are too old; return their devices by driver."""
        old: dict[str, set[DeviceName]] = {}
        for driver, known in self._drivers.items():
            for name in [n for n, each in known.items() if self._now() - each.at > each.seconds]:
                del known[name]
                old.setdefault(driver, set()).add(name)
        return old

    def forget(self, driver: str) -> set[DeviceName]:
        """Forget all devices of a driver; return them."""
        return set(self._drivers.pop(driver, ()))

    def _reported(self, report: m.DeviceHealth) -> ReportedHealth:
        message = report.message
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 3] + "..."
        seconds = float(report.health_check_timeout_seconds)
        return ReportedHealth(
            HEALTH_NAMES.get(report.health, UNKNOWN),
            message,
            seconds if seconds > 0 else DEFAULT_SECONDS,
            self._now(),
        )
