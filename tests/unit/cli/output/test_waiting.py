"""A line about what a command waits for."""

import asyncio
import io
import sys

import pytest

from kedge.cli.output.waiting import waiting


async def test_short_work_and_pipes_have_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    with waiting(lambda: "pod/web"):
        pass
    assert out.getvalue() == ""


async def test_the_end_of_the_work_ends_the_line() -> None:
    before = len(asyncio.all_tasks())
    with pytest.raises(TimeoutError), waiting(lambda: "pod/web"):
        raise TimeoutError
    assert len(asyncio.all_tasks()) == before
