"""Splits work into portions."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def portions(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of so many items; the last one may be shorter."""
    source = iter(items)
    while portion := list(islice(source, size)):
        yield portion
