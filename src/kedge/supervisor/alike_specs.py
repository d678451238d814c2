"""Keeps what the specs of most containers have in common in memory once."""

import sys
from typing import Any, Final

from kedge.supervisor.spec import ContainerSpec

_PARTS: Final = ("lowers", "hidden", "concealed", "shown", "seccomp")
"""Parts that are the same for many containers, and that nothing changes in place. Variables and
arguments are not among them: they hold secrets, and must not outlive their container."""
_MOST: Final = 64
"""Different parts that are remembered."""


class AlikeSpecs:
    """The parts of earlier specs."""

    def __init__(self) -> None:
        self._known: dict[str | tuple[str, ...], Any] = {}

    def share(self, spec: ContainerSpec) -> None:
        """Replace parts of a new spec by equal ones of earlier specs."""
        for name in _PARTS:
            part: Any = spec[name]
            key = part if isinstance(part, str) else tuple(part)
            if len(self._known) >= _MOST and key not in self._known:
                self._known.clear()
            spec[name] = self._known.setdefault(key, part)


def with_shared_names(value: Any) -> Any:
    """Return a copy of a decoded message whose names of fields are shared by all messages: the
    decoder shares them within one."""
    if isinstance(value, dict):
        return {sys.intern(name): with_shared_names(each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_shared_names(each) for each in value]
    return value
