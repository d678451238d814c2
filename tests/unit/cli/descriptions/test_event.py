"""Events, described."""

from datetime import UTC, datetime

from kedge.cli.descriptions.event import describe
from kedge.cli.descriptions.parts import RelatedObjects

ABOUT = RelatedObjects(now=datetime(2030, 1, 1, 0, 1, tzinfo=UTC))


def test_an_event_tells_what_happened_to_what_and_who_says_so() -> None:
    event = {
        "metadata": {"name": "web.1", "namespace": "n"},
        "type": "Warning",
        "reason": "BackOff",
        "message": "again\nand again",
        "count": 2,
        "firstTimestamp": "2030-01-01T00:00:00Z",
        "lastTimestamp": "2030-01-01T00:00:30Z",
        "source": {"component": "node"},
        "involvedObject": {
            "kind": "Pod",
            "name": "web",
            "namespace": "n",
            "fieldPath": "spec.containers{c}",
        },
    }
    lines = dict(line.split(":", 1) for line in describe(event, ABOUT).splitlines()[:-1])
    assert lines["Object"].strip() == "Pod/web in namespace n, spec.containers{c}"
    assert lines["How Often"].strip() == "30s (x2 over 60s)"
    assert lines["From"].strip() == "node"
    assert lines["Message"].strip() == "again"
    assert describe(event, ABOUT).endswith("             and again")


def test_the_newer_form_of_events_is_understood() -> None:
    event = {
        "metadata": {"name": "x", "namespace": "n"},
        "regarding": {"kind": "Node", "name": "one"},
        "note": "hello",
        "eventTime": "2030-01-01T00:00:00.000000Z",
        "reportingController": "kedge",
    }
    told = describe(event, ABOUT)
    assert "Node/one\n" in told
    assert "hello" in told
    assert "kedge" in told
