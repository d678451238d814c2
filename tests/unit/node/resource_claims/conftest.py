"""The resource claims of a node over real sockets, in a time that stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.testing.dra_driver import ClaimStage, claim_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[ClaimStage]:
    async with claim_stage(tmp_path) as made:
        yield made
