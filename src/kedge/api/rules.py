"""Validation functions that many kinds share; each yields the errors of one field."""

from collections.abc import Hashable, Iterable, Iterator, Sequence

from kedge.machinery.errors import FieldError

NEGATIVE = "must be greater than or equal to 0"
IMMUTABLE = "field is immutable"
PROTOCOLS = ("SCTP", "TCP", "UDP")


def problems(path: str, value: object, found: Iterable[str]) -> Iterator[FieldError]:
    """Yield the findings of a naming rule as errors of one field."""
    for problem in found:
        yield FieldError.invalid(path, value, problem)


def repeated(values: Sequence[Hashable]) -> Iterator[int]:
    """Yield the indexes of values that repeat an earlier one."""
    seen: set[Hashable] = set()
    for i, value in enumerate(values):
        if value in seen:
            yield i
        seen.add(value)


def nonnegative(path: str, value: int | None) -> Iterator[FieldError]:
    if value is not None and value < 0:
        yield FieldError.invalid(path, value, NEGATIVE)


def unchanged(path: str, new: object, old: object) -> Iterator[FieldError]:
    """An update must leave the field as it was."""
    if new != old:
        yield FieldError.invalid(path, new, IMMUTABLE)


def one_of(path: str, value: str, allowed: Sequence[str]) -> Iterator[FieldError]:
    """The field must be set, to one of these."""
    if not value:
        yield FieldError.required(path)
    elif value not in allowed:
        yield FieldError.not_supported(path, value, allowed)


def none_or_one_of(path: str, value: str | None, allowed: Sequence[str]) -> Iterator[FieldError]:
    """The field, if set, must be one of these."""
    if value and value not in allowed:
        yield FieldError.not_supported(path, value, allowed)
