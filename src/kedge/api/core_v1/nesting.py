"""Adds the path of a part to its errors.

Checks name fields relative to what they look at; only an error pays for its full path.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kedge.machinery.errors import FieldError

T = TypeVar("T")
Check = Callable[[T], Iterable[FieldError]]


def within(path: str, errors: Iterable[FieldError]) -> Iterator[FieldError]:
    """Errors of one field's value."""
    for error in errors:
        yield error.under(path)


def each(path: str, items: Iterable[T], check: Check[T]) -> Iterator[FieldError]:
    """Errors of the elements of a list."""
    for i, item in enumerate(items):
        for error in check(item):
            yield error.under(f"{path}[{i}]")
