"""maxSurge and maxUnavailable: numbers, or percentages of the desired replicas."""

from collections.abc import Iterator
from typing import Final

from kedge.api import rules
from kedge.machinery import names
from kedge.machinery.errors import FieldError

INT32_MAX: Final = 2**31 - 1
MOST_DIGITS: Final = 10


def validate_amount(value: int | str | None, path: str) -> Iterator[FieldError]:
    """A number of pods that is not negative, or a percentage."""
    if isinstance(value, str):
        yield from rules.problems(path, value, names.percent(value))
    else:
        yield from rules.nonnegative(path, value)


def validate_share(value: int | str | None, path: str) -> Iterator[FieldError]:
    """A percentage is of the whole at most."""
    if isinstance(value, str) and not names.percent(value) and percentage(value) > 100:
        yield FieldError.invalid(path, value, "must not be greater than 100%")


def is_zero(value: int | str | None) -> bool:
    """Whether no pod at all is meant, be it as a number or as a percentage."""
    if not isinstance(value, str):
        return not value
    return not value.removesuffix("%").strip("0").isdecimal()


def count(value: int | str | None, whole: int, *, up: bool) -> int:
    """A valid number or percentage as a number of pods, a fraction of one being rounded."""
    if not isinstance(value, str):
        return value or 0
    hundredths = percentage(value) * whole
    return min(-(-hundredths // 100) if up else hundredths // 100, INT32_MAX)


def percentage(value: str) -> int:
    """Return the number in a valid percentage, at most 2**31-1.

    Upstream accepts more digits and then fails to read them in each reconciliation."""
    digits = value.removesuffix("%").lstrip("0") or "0"
    return INT32_MAX if len(digits) > MOST_DIGITS else min(int(digits), INT32_MAX)
