"""What `kedge wait` waits for."""

from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.wait.condition import parse


def pod(ready: str = "", phase: str = "", **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    return {
        "metadata": {"generation": 2},
        "status": {"conditions": conditions, "phase": phase, **status},
    }


@pytest.mark.parametrize(
    ("condition", "document", "is_met"),
    [
        ("delete", None, True),
        ("delete", pod(), False),
        ("create", None, False),
        ("create", pod(), True),
        ("condition=Ready", pod("True"), True),
        ("condition=ready", pod("True"), True),
        ("condition=Ready", pod("False"), False),
        ("condition=Ready=false", pod("False"), True),
        ("condition=Ready", pod(), False),
        ("condition=Ready", None, False),
        ("condition=Ready", pod("True", observedGeneration=1), False),
        ("condition=Ready", pod("True", observedGeneration=2), True),
        ("jsonpath={.status.phase}=Running", pod(phase="Running"), True),
        ("jsonpath='{.status.phase}'=Running".replace("'", ""), pod(phase="Pending"), False),
        ("jsonpath=.status.phase=Running", pod(phase="Running"), True),
        ("jsonpath={.status.address}", pod(), False),
        ("jsonpath={.status.address}", pod(address="10.0.0.1"), True),
        ("jsonpath={.status.ok}=true", pod(ok=True), True),
        ("jsonpath={.status.conditions[?(@.type=='Ready')].status}=True", pod("True"), True),
    ],
)
def test_an_object_is_there_or_not(
    condition: str, document: dict[str, Any] | None, is_met: bool
) -> None:
    assert parse(condition).is_met(document) is is_met


@pytest.mark.parametrize(
    ("condition", "document", "standing"),
    [
        ("condition=Ready", None, "it does not exist"),
        ("condition=ready", pod("False"), "Ready is False"),
        ("condition=Lost", pod("True"), "it has no condition Lost"),
        (
            "condition=Ready",
            {
                "metadata": {},
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "False", "reason": "No", "message": "not yet"}
                    ]
                },
            },
            "Ready is False (No: not yet)",
        ),
        ("jsonpath={.status.phase}=Running", pod(phase="Pending"), "the value is Pending"),
        ("jsonpath={.status.address}", pod(), "it has no such value"),
        ("delete", pod(), "it is not being deleted"),
        ("delete", {"metadata": {"deletionTimestamp": "t"}}, "it is being deleted"),
        (
            "delete",
            {"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}},
            "its finalizers are a/b",
        ),
    ],
)
def test_how_an_object_stands_is_told(
    condition: str, document: dict[str, Any] | None, standing: str
) -> None:
    assert parse(condition).standing(document) == standing


@pytest.mark.parametrize("text", ["", "ready", "condition=", "jsonpath=", "jsonpath={.a[}"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(Failure):
        parse(text)
