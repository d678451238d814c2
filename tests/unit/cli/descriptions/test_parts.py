"""The parts of descriptions."""

from datetime import UTC, datetime
from typing import Any

from kedge.cli.descriptions.parts import (
    RelatedObjects,
    annotations,
    controller,
    events,
    labels,
    text,
)

NOW = datetime(2030, 1, 1, 0, 10, tzinfo=UTC)


def test_labels_stand_one_under_the_other() -> None:
    assert list(labels("Labels", {"b": "2", "a": "1"})) == ["Labels:\ta=1", "\tb=2"]
    assert list(labels("Labels", None)) == ["Labels:\t<none>"]


def test_long_annotations_are_cut_and_what_apply_keeps_is_left_out() -> None:
    told = list(
        annotations(
            {
                "a": "short",
                "b": "two\nlines\n",
                "c": "x" * 200,
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            }
        )
    )
    assert told == [
        "Annotations:\ta: short",
        "\tb:",
        "\t  two",
        "\t  lines",
        "\tc:",
        f"\t  {'x' * 138}...",
    ]


def event(**fields: Any) -> dict[str, Any]:
    return {"type": "Normal", "reason": "Pulled", "source": {"component": "node"}, **fields}


def test_events_are_told_the_latest_last_with_how_often() -> None:
    told = [
        event(message="later\n", firstTimestamp="2030-01-01T00:09:00Z"),
        event(
            message="before",
            firstTimestamp="2030-01-01T00:00:00Z",
            lastTimestamp="2030-01-01T00:05:00Z",
            count=3,
            involvedObject={"fieldPath": "spec.containers{c}"},
        ),
    ]
    about = RelatedObjects(now=NOW, events=told)
    assert text(events(about)).splitlines() == [
        "Events:",
        "  Type    Reason  Age               From  Message",
        "  ----    ------  ----              ----  -------",
        "  Normal  Pulled  5m (x3 over 10m)  node  spec.containers{c}: before",
        "  Normal  Pulled  60s               node  later",
    ]


def test_no_events_and_events_that_may_not_be_read_differ() -> None:
    assert list(events(RelatedObjects(now=NOW, events=[]))) == ["Events:\t<none>"]
    assert list(events(RelatedObjects(now=NOW))) == []


def test_nothing_in_an_object_commands_the_terminal() -> None:
    assert text(["Name:\t\x1b[2J"]) == "Name:  ^[[2J"


def test_only_a_controller_controls() -> None:
    owners = [{"kind": "Job", "name": "a"}, {"kind": "ReplicaSet", "name": "b", "controller": True}]
    assert controller({"ownerReferences": owners}) == "ReplicaSet/b"
    assert controller({}) == ""
