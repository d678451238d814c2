"""The settings of a cluster in a test, as flags of `kedge up`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kedge.cluster.errors import ClusterError

Value = str | int | float | bool | Path | Sequence[str | Path] | Mapping[str, Any]
"""The value of a setting. A sequence repeats its flag; a mapping is written as KEY=VALUE,..."""

SWITCHES: Final = frozenset(
    ("gateway", "scheduler-usage", "service-account-extend-token-expiration")
)
"""Settings with the values on and off."""
OWN: Final = {
    "name": "a cluster in a test needs no name",
    "config": "a cluster in a test does not read kedge.toml",
    "foreground": "a cluster in a test ends with the test",
    "restart": "a cluster in a test does not restart programs that die",
    "scale-down-delay": "a cluster in a test has a fixed number of nodes",
}
"""Settings of `kedge up` that a cluster in a test does not have, each with the reason."""


def flags(settings: Mapping[str, Value]) -> list[str]:
    """Return the flags that set these values; raises ClusterError for one that cannot be set."""
    return [flag for name, value in settings.items() for flag in _flags(name, value)]


def _flags(keyword: str, value: Value) -> Iterator[str]:
    name = keyword.replace("_", "-")
    if name in OWN:
        raise ClusterError(f"{keyword} cannot be set: {OWN[name]}")
    if isinstance(value, bool):
        yield f"--{name}={_on(value)}" if name in SWITCHES else f"--{'' if value else 'no-'}{name}"
    elif isinstance(value, str | int | float | Path):
        yield f"--{name}={value}"
    elif isinstance(value, Mapping):
        yield f"--{name}={','.join(f'{key}={each}' for key, each in value.items())}"
    else:
        yield from (f"--{name}={each}" for each in value)


def _on(value: bool) -> str:
    return "on" if value else "off"
