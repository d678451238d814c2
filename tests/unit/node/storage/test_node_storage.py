"""What a driver may state about its node."""

import pytest

from kedge.node.storage.node_storage import check_topology


def test_a_topology_that_contradicts_a_label_is_refused() -> None:
    labels = {"example.com/rack": "r1"}
    check_topology(labels, {})
    check_topology(labels, labels)
    with pytest.raises(ValueError, match="existing label is"):
        check_topology(labels, {"example.com/rack": "r2"})
