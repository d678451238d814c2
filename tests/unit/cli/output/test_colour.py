"""Colours: for people at a terminal who want them."""

import io

import pytest

from kedge.cli.output.colour import painted


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Terminal(), {}, "\x1b[31merror\x1b[0m"),
        (Terminal(), {"NO_COLOR": ""}, "\x1b[31merror\x1b[0m"),
        (Terminal(), {"NO_COLOR": "1"}, "error"),
        (Terminal(), {"TERM": "dumb"}, "error"),
        (io.StringIO(), {}, "error"),
    ],
)
def test_only_a_terminal_shows_colours(
    stream: io.StringIO, environment: dict[str, str], expected: str
) -> None:
    assert painted("error", "red", stream, environment) == expected
