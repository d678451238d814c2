"""The storage of a node, as the API has it."""

from kedge.node.storage.storage_report import ReportedDriver


def test_a_driver_without_a_limit_has_no_count() -> None:
    assert ReportedDriver("d", "n").document() == {
        "name": "d",
        "nodeID": "n",
        "topologyKeys": None,
    }
    assert ReportedDriver("d", "n", ("k",), 3).document() == {
        "name": "d",
        "nodeID": "n",
        "topologyKeys": ["k"],
        "allocatable": {"count": 3},
    }
