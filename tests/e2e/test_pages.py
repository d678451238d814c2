"""The transcripts of the tutorials and of the design documents are replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.transcripts import HUGE_PAGES, ROOT, replay

if TYPE_CHECKING:
    from tests.e2e.conftest import Terminal

PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("docs/tutorials/*.md", "docs/seeds/0*.md")
    for path in ROOT.glob(pattern)
    if path != ROOT / HUGE_PAGES
)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_transcript(page: Path, terminal: Terminal) -> None:
    replay(page, terminal)
