"""Expansion: `$(NAME)` in commands and arguments, replaced by what a variable holds."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kedge.node.pod.dependencies import ConfigFailure

LONGEST: Final = 128 << 10
"""Bytes of one argument or variable that the kernel takes (MAX_ARG_STRLEN), its end included."""
MOST: Final = 6 << 20
"""Bytes of all arguments and variables of a program that the kernel takes at the very most."""
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace references; `$$` is a dollar sign, and a reference to an unknown name stays as it
    is.

    Nested references can expand a few hundred bytes to gigabytes. ConfigFailure is raised as
    soon as the text is longer than the kernel accepts for a program.
    """
    # After the last parenthesis there are no references. Searching the end of every `$(` there
    # would take quadratic time.
    end = text.rfind(")") + 1
    parts: list[str] = []
    at = size = 0
    for found in _REFERENCE.finditer(text, 0, end):
        parts += (text[at : found.start()], _replaced(found, values))
        at = found.end()
        size += len(parts[-2]) + len(parts[-1])
        if size >= LONGEST:
            break
    whole = "".join((*parts, text[at:end], text[max(at, end) :].replace("$$", "$")))
    if parts and len(whole) >= LONGEST:
        raise ConfigFailure(f"a value with references is longer than {LONGEST - 1} bytes")
    return whole


def expand_all(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """Replace references in all arguments of a program; raises ConfigFailure if they exceed the
    kernel's limit."""
    expanded: list[str] = []
    size = 0
    for text in texts:
        expanded.append(expand(text, values))
        size += len(expanded[-1])
        if size > MOST:
            raise ConfigFailure(f"arguments are longer than {MOST} bytes together")
    return expanded


def _replaced(found: re.Match[str], values: Mapping[str, str]) -> str:
    if found[1] is None:
        return "$"
    return values.get(found[1], found[0])


def strictly_expanded(text: str, values: Mapping[str, str]) -> str:
    """Replace references, each of which must be to something; raises ConfigFailure if not."""
    for name in filter(None, _REFERENCE.findall(text, 0, text.rfind(")") + 1)):
        if not values.get(name):
            raise ConfigFailure(f"missing value for {name}")
    return expand(text, values)
