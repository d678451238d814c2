"""How many pods a rolling update may add or take: numbers, or percentages of what is wanted."""

from collections.abc import Iterator

from kedge.api import rules
from kedge.machinery import names
from kedge.machinery.errors import FieldError


def validate_amount(value: int | str | None, path: str) -> Iterator[FieldError]:
    """A number of pods that is not negative, or a percentage."""
    if isinstance(value, str):
        yield from rules.problems(path, value, names.percent(value))
    else:
        yield from rules.nonnegative(path, value)


def validate_share(value: int | str | None, path: str) -> Iterator[FieldError]:
    """A percentage is of the whole at most."""
    if isinstance(value, str) and not names.percent(value) and int(value[:-1]) > 100:
        yield FieldError.invalid(path, value, "must not be greater than 100%")


def is_zero(value: int | str | None) -> bool:
    """Whether no pod at all is meant, be it as a number or as a percentage."""
    if not isinstance(value, str):
        return not value
    if not names.percent(value):
        value = value[:-1]
    return not value.isdecimal() or int(value) == 0


def count(value: int | str | None, whole: int, *, up: bool) -> int:
    """A valid number or percentage as a number of pods, a fraction of one being rounded."""
    if not isinstance(value, str):
        return value or 0
    hundredths = int(value.removesuffix("%")) * whole
    return -(-hundredths // 100) if up else hundredths // 100
