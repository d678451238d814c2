"""Expansion: `$(NAME)` in commands and arguments, replaced by what a variable holds."""

import re
from collections.abc import Mapping
from typing import Final

from kedge.node.parts import ConfigFailure

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace references; `$$` is a dollar sign, and one to an unknown name stays as it is."""
    return _REFERENCE.sub(lambda found: _replaced(found, values), text)


def _replaced(found: re.Match[str], values: Mapping[str, str]) -> str:
    if found[1] is None:
        return "$"
    return values.get(found[1], found[0])


def strictly_expanded(text: str, values: Mapping[str, str]) -> str:
    """Replace references, each of which must be to something; raises ConfigFailure if not."""
    for name in filter(None, _REFERENCE.findall(text)):
        if not values.get(name):
            raise ConfigFailure(f"missing value for {name}")
    return expand(text, values)
