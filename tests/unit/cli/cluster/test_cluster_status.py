"""How long `kedge status` waits for a server that has just started."""

from datetime import UTC, datetime, timedelta

import pytest

from kedge.cli.cluster.cluster_status import START_SECONDS, start_seconds_left

STARTED = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "left"),
    [
        (0, START_SECONDS),
        (4, START_SECONDS - 4),
        (START_SECONDS, 0),
        (3600, 0),
        (-3600, START_SECONDS),
    ],
)
def test_a_server_is_waited_for_in_its_first_seconds_only(age: float, left: float) -> None:
    assert start_seconds_left(STARTED, STARTED + timedelta(seconds=age)) == left
