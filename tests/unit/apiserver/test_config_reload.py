"""What is counted and logged when a configuration file changes."""

import logging

import pytest

from kedge.apiserver.config_reload import ReloadLog
from kedge.apiserver.telemetry import Telemetry
from kedge.testing.clock import FakeClock


async def test_reloads_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock, telemetry = FakeClock(), Telemetry()
    reloads = ReloadLog("authorization", clock)
    reloads.add_metrics(telemetry)
    with caplog.at_level(logging.INFO):
        reloads.succeeded()
        await clock.advance(10)
        reloads.failed(ValueError("bad file"))
        reloads.failed(TimeoutError())
    assert reloads.counts == {"success": 1, "failure": 2}
    assert [each.getMessage() for each in caplog.records] == [
        "reloaded authorization config",
        "authorization config not reloaded error=bad file",
        "authorization config not reloaded error=timeout",
    ]
    text = telemetry.text()
    name = "apiserver_authorization_config_controller_automatic_reload"
    assert f'{name}s_total{{status="failure"}} 2' in text
    assert f'{name}_last_timestamp_seconds{{status="failure"}}' in text
