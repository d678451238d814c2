"""A cache of results for short texts.

`functools.lru_cache` bounds the number of results, but not their size. Clients choose these texts:
with texts of megabytes, a cache of some thousand results would fill the memory.
"""

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Final, TypeVar

Result = TypeVar("Result")

SHORT: Final = 256
"""The usual limit: names and paths of Kubernetes have at most 253 characters."""


def short_cache(
    entries: int, longest: int = SHORT
) -> Callable[[Callable[[str], Result]], Callable[[str], Result]]:
    """Return a decorator that caches the latest results for texts of limited length."""

    def decorate(function: Callable[[str], Result]) -> Callable[[str], Result]:
        cached = lru_cache(entries)(function)

        def call(text: str) -> Result:
            return cached(text) if len(text) <= longest else function(text)

        return update_wrapper(call, function)

    return decorate
