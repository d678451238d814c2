"""The table of windows, and what is computed of each window: the one declaration of these facts.

Flags, API validation, frames, columns and documents derive from it. The window structure in
`kedge.metrics.series` is built for the four lengths: a new length needs a decision there too.
"""

from enum import Enum
from typing import Final, NamedTuple

TICK_SECONDS: Final = 10
"""Windows move on once in each tick. Tick number n ends n * TICK_SECONDS after the epoch."""
WINDOWS: Final = {"10s": 10, "1m": 60, "1h": 3600, "1d": 86400}
"""Length in seconds by name, shortest first."""
SHORTEST: Final = "10s"
"""The window whose mean metrics.k8s.io reports by default, so that new pods count soon."""
MAIN: Final = "1m"
"""The window that tables and autoscalers use unless another one is requested."""
STATISTICS: Final = ("mean", "max", "95th")

MINUTE: Final = WINDOWS["1m"]
HOUR: Final = WINDOWS["1h"]
DAY: Final = WINDOWS["1d"]


class Unit(Enum):
    """The unit of a detail."""

    BYTES = "bytes"
    COUNT = "count"
    BYTES_PER_SECOND = "bytes_per_second"
    PER_SECOND = "per_second"
    SHARE = "share"
    """Of the time or of the periods, from 0 to 1."""


class UsageDetail(NamedTuple):
    """A resource that is measured once in each tick, with less precision than cpu and memory."""

    name: str
    unit: Unit
    description: str

    @property
    def is_counter(self) -> bool:
        """Whether it is the growth of a counter, not an amount."""
        return self.unit not in (Unit.BYTES, Unit.COUNT)


CORE: Final = ("cpu", "memory")
"""The resources that are measured each second, and that metrics.k8s.io has too."""
DETAILS: Final = (
    UsageDetail(
        "ephemeral-storage", Unit.BYTES, "writable layers, logs and emptyDir volumes on disk"
    ),
    UsageDetail("ephemeral-inodes", Unit.COUNT, "files and directories in these"),
    UsageDetail("disk-read", Unit.BYTES_PER_SECOND, "bytes read from disks"),
    UsageDetail("disk-write", Unit.BYTES_PER_SECOND, "bytes written to disks"),
    UsageDetail("disk-reads", Unit.PER_SECOND, "read operations of disks"),
    UsageDetail("disk-writes", Unit.PER_SECOND, "write operations of disks"),
    UsageDetail("network-receive", Unit.BYTES_PER_SECOND, "bytes received from the network"),
    UsageDetail("network-transmit", Unit.BYTES_PER_SECOND, "bytes sent to the network"),
    UsageDetail("cpu-throttled", Unit.SHARE, "periods in which the limit of cpu held it back"),
    UsageDetail("cpu-pressure-some", Unit.SHARE, "time in which a task waited for a processor"),
    UsageDetail("memory-pressure-some", Unit.SHARE, "time in which a task waited for memory"),
    UsageDetail("memory-pressure-full", Unit.SHARE, "time in which all tasks waited for memory"),
    UsageDetail("io-pressure-some", Unit.SHARE, "time in which a task waited for a disk"),
    UsageDetail("io-pressure-full", Unit.SHARE, "time in which all tasks waited for a disk"),
    UsageDetail("oom-kills", Unit.PER_SECOND, "processes killed because memory ran out"),
    UsageDetail("page-faults", Unit.PER_SECOND, "page faults"),
    UsageDetail("major-page-faults", Unit.PER_SECOND, "page faults that read from a disk"),
)
"""In the order of frames: new ones are appended, at most 32 in all."""
RESOURCES: Final = (*CORE, *(each.name for each in DETAILS))


def tick_of(second: int) -> int:
    """The tick that contains the second that ends then."""
    return -(-second // TICK_SECONDS)
