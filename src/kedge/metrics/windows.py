"""The table of windows, and what is computed of each window: the one declaration of these facts.

Flags, API validation, frames, columns and documents derive from it. The window structure in
`kedge.metrics.series` is built for the four lengths: a new length needs a decision there too.
"""

from typing import Final

TICK_SECONDS: Final = 10
"""Windows move on once in each tick. Tick number n ends n * TICK_SECONDS after the epoch."""
WINDOWS: Final = {"10s": 10, "1m": 60, "1h": 3600, "1d": 86400}
"""Length in seconds by name, shortest first."""
SHORTEST: Final = "10s"
"""The window whose mean metrics.k8s.io reports by default, so that new pods count soon."""
MAIN: Final = "1m"
"""The window that tables and autoscalers use unless another one is requested."""
STATISTICS: Final = ("mean", "max", "95th")
RESOURCES: Final = ("cpu", "memory")

MINUTE: Final = WINDOWS["1m"]
HOUR: Final = WINDOWS["1h"]
DAY: Final = WINDOWS["1d"]


def tick_of(second: int) -> int:
    """The tick that contains the second that ends then."""
    return -(-second // TICK_SECONDS)
