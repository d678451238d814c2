from typing import Any

import pytest

from kedge.cluster.conditions import check, is_reached
from kedge.cluster.errors import ClusterError


def deployment(status: str, *, generation: int = 1, observed: int = 1) -> dict[str, Any]:
    condition = {"type": "Available", "status": status}
    return {
        "metadata": {"generation": generation},
        "status": {"observedGeneration": observed, "conditions": [condition]},
    }


POD = {"metadata": {}, "status": {"phase": "Running", "conditions": []}}


@pytest.mark.parametrize(
    ("state", "obj", "reached"),
    [
        ("Available", deployment("True"), True),
        ("Available", deployment("False"), False),
        ("Available=False", deployment("False"), True),
        ("Available=unknown", deployment("Unknown"), True),
        ("Available", deployment("True", generation=2), False),
        ("Available", {"metadata": {}}, False),
        ("Available", None, False),
        ("Ready", POD, False),
        ("Running", POD, True),
        ("Succeeded", POD, False),
        ("Failed", {"status": {"phase": "Failed"}}, True),
        ("Failed", {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, True),
        ("exists", POD, True),
        ("exists", None, False),
        ("deleted", POD, False),
        ("deleted", None, True),
        (lambda obj: obj["status"]["phase"] == "Running", POD, True),
        (lambda obj: obj["status"]["phase"] == "Failed", POD, False),
    ],
)
def test_a_state_is_reached(state: Any, obj: Any, reached: bool) -> None:
    assert is_reached(state, obj) is reached


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(ClusterError, match="is no state"):
        check("")
