"""`kedge clock`: flags and what is printed."""

import pytest

from kedge.api.testing.clock_change import ClockChange, ClockState
from kedge.cli.clock.change import change_of, shown
from kedge.cli.main import parser


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("advance 1h", ClockChange(advance=3600)),
        ("freeze", ClockChange(frozen=True)),
        ("resume", ClockChange(frozen=False)),
        ("show", None),
    ],
)
def test_flags_describe_a_change(line: str, change: ClockChange | None) -> None:
    assert change_of(parser().parse_args(["clock", *line.split()])) == change


def test_a_line_about_the_clock() -> None:
    now = "2030-01-01T00:00:00.000000Z"
    assert (
        shown(ClockState(now=now, offset=60, frozen=False)) == f"{now}, 60 s ahead of the machine"
    )
    late = ClockState(now=now, offset=-5, frozen=True)
    assert shown(late) == f"{now}, 5 s behind the machine, frozen"
