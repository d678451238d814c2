"""Columns of `kedge top -o wide`: disk, network and throttling."""

from typing import Final

from kedge.api.model import ResourceList
from kedge.machinery.quantity import Quantity
from kedge.metrics.windows import DETAILS, Unit

_COLUMNS: Final = {
    "DISK": "ephemeral-storage",
    "READ": "disk-read",
    "WRITE": "disk-write",
    "RECEIVE": "network-receive",
    "SEND": "network-transmit",
    "THROTTLED": "cpu-throttled",
}
_UNITS: Final = {each.name: each.unit for each in DETAILS}
_PREFIXES: Final = ("", "k", "M", "G", "T", "P")

HEADINGS: Final = tuple(_COLUMNS)


def cells(used: ResourceList) -> list[str]:
    """Return the amounts, in the order of HEADINGS; `-` for one that is 0 or not measured."""
    return [amount(name, used.get(name)) for name in _COLUMNS.values()]


def amount(detail: str, used: Quantity | None) -> str:
    """Return an amount of a detail with its unit, such as `1.2 MB/s` or `25%`."""
    if used is None:
        return "-"
    number = used.nanos / 1_000_000_000
    match _UNITS[detail]:
        case Unit.SHARE:
            return f"{number:.0%}" if number >= 0.01 or not number else "<1%"
        case Unit.BYTES:
            return scaled(number, "B")
        case Unit.BYTES_PER_SECOND:
            return scaled(number, "B/s")
        case Unit.COUNT:
            return f"{number:.0f}"
        case Unit.PER_SECOND:
            return f"{number:.1f}/s" if number >= 0.1 or not number else "<0.1/s"


def scaled(number: float, unit: str) -> str:
    """Return a number of bytes with three digits at most and a decimal prefix."""
    prefix = 0
    while number >= 999.5 and prefix < len(_PREFIXES) - 1:
        number /= 1000
        prefix += 1
    digits = 1 if prefix and number < 9.95 else 0
    return f"{number:.{digits}f} {_PREFIXES[prefix]}{unit}"
