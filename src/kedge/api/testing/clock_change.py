"""ClockChange and ClockState: how tests move the clock of a cluster, and where it stands."""

from collections.abc import Iterator
from typing import Final

import msgspec

from kedge.machinery.errors import FieldError, bad_request, invalid

MOST_SECONDS: Final = 10 * 365 * 86400.0
"""The furthest that one change moves a clock."""


class ClockChange(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """First the clock stops or continues, then it moves."""

    advance: float = 0.0
    """Seconds."""
    frozen: bool | None = None
    """Whether the clock stands still; None leaves it as it is."""


class ClockState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the clock of a cluster stands."""

    now: str
    offset: float
    """Seconds by which it is ahead of the machine's clock; negative after it stood still."""
    frozen: bool
    behind: list[str] = []
    """Nodes that do not follow the clock, or have not yet."""


def decoded_change(body: bytes) -> ClockChange:
    """Return the change that a client sent; 400 or 422 if it has mistakes."""
    try:
        change = msgspec.json.decode(body, type=ClockChange)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not a change of the clock: {error}") from None
    if errors := list(change_errors(change)):
        raise invalid("", "ClockChange", "", errors)
    return change


def change_errors(change: ClockChange) -> Iterator[FieldError]:
    """Yield every mistake of a change."""
    if not 0 <= change.advance <= MOST_SECONDS:
        why = f"must be between 0 and {MOST_SECONDS:.0f} seconds: time does not go back"
        yield FieldError.invalid("advance", change.advance, why)
