"""Windows: what something used during the last ten seconds, minute, hour and day."""

from collections.abc import Mapping, Sequence

from msgspec import field

from kedge.api.model import Model, ResourceList, Time
from kedge.machinery.quantity import Quantity


class Metrics(Model):
    """Statistics of one window of time."""

    __required__ = ("endtime", "mean", "max", "95th")

    endtime: Time = ""
    """When the window ended."""
    starttime: Time = ""
    """When it began, if that is later than its length would have it."""
    mean: ResourceList = field(default_factory=dict)
    """Average usage, by resource."""
    max: ResourceList = field(default_factory=dict)
    """The most that was used."""
    ninety_fifth: ResourceList = field(name="95th", default_factory=dict)
    """The 95th percentile of the samples."""


Windows = Mapping[str, Metrics]
"""By their lengths: 10s, 1m, 1h and 1d."""


class ContainerMeta(Model):
    """Which container."""

    name: str = ""
    """Its name."""


class Container(Model):
    """The usage of one container."""

    __required__ = ("metadata", "metrics")

    metadata: ContainerMeta = ContainerMeta()
    """Which container it is."""
    metrics: Windows = field(default_factory=dict)
    """Its usage, by length of the window: 10s, 1m, 1h, 1d."""


def cores(amount: Quantity | None) -> str:
    """`0.12 cores`."""
    if amount is None:
        return "<unknown>"
    hundredths = (amount.nanos + 5_000_000) // 10_000_000
    return f"{hundredths // 100}.{hundredths % 100:02} cores"


def megabytes(amount: Quantity | None) -> str:
    """`302 MB`."""
    if amount is None:
        return "<unknown>"
    return f"{(amount.value() + 500_000) // 1_000_000} MB"


def added(parts: Sequence[ResourceList]) -> ResourceList:
    """The sum, by resource."""
    total: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total
