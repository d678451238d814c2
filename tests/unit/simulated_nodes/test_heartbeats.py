"""How often the leases of simulated nodes are renewed."""

import pytest

from kedge.simulated_nodes.heartbeats import renewal_seconds


@pytest.mark.parametrize(
    ("nodes", "grace", "seconds"),
    [(1, 50, 10), (100, 50, 10), (101, 50, 20), (1000, 40, 16), (5, 5, 2)],
)
def test_a_lease_is_renewed_twice_within_the_grace_period(
    nodes: int, grace: float, seconds: float
) -> None:
    assert renewal_seconds(nodes, grace) == seconds
