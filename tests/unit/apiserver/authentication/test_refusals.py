"""A flood of bad credentials fills no log."""

import logging

import pytest

from kedge.apiserver.authentication.refusals import MOST_SOURCES, RefusalLog
from kedge.testing.clock import FakeClock


@pytest.fixture(autouse=True)
def _listening(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


async def test_one_source_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    refusals = RefusalLog(clock)
    for _ in range(1000):
        refusals.note("10.0.0.7", "bad")
    refusals.note("10.0.0.8", "worse")
    assert [record.getMessage() for record in caplog.records] == [
        "refused credentials source=10.0.0.7 reason='bad' not_logged_before=0",
        "refused credentials source=10.0.0.8 reason='worse' not_logged_before=0",
    ]
    caplog.clear()
    await clock.advance(60)
    refusals.note("10.0.0.7", "bad")
    (record,) = caplog.records
    assert record.getMessage().endswith("not_logged_before=999")


async def test_a_flood_from_everywhere_is_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    refusals = RefusalLog(clock)
    for number in range(3 * MOST_SOURCES):
        refusals.note(f"2001:db8::{number:x}", "bad")
    assert len(caplog.records) == MOST_SOURCES
    caplog.clear()
    await clock.advance(60)
    refusals.note("10.0.0.7", "bad")
    assert f"count={2 * MOST_SOURCES}" in caplog.records[0].getMessage()
    assert "source=10.0.0.7" in caplog.records[1].getMessage()
