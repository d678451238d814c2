"""The transcripts of README.md and examples/ are replayed: what they show is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.transcripts import HUGE_PAGES, ROOT, pattern, replay

if TYPE_CHECKING:
    from tests.e2e.conftest import Terminal

PAGES = [
    Path("README.md"),
    *sorted(p.relative_to(ROOT) for p in ROOT.glob("examples/*/README.md")),
    HUGE_PAGES,
]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_transcript(page: Path, terminal: Terminal) -> None:
    replay(page, terminal)


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        (["a   b"], "a b\n", True),
        (["ready at ... s"], "ready at https://1.2.3.4 0.3 s\n", True),
        (["first", "..."], "first\nsecond\nthird\n", True),
        (["first"], "first\nsecond\n", False),
        (["1.5"], "1x5\n", False),
    ],
)
def test_output_is_compared_line_by_line(shown: list[str], said: str, same: bool) -> None:
    assert bool(re.fullmatch(pattern(shown), said)) is same
