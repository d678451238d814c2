from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.controllers.pod_state import (
    available_in,
    expendable_first,
    is_active,
    is_available,
)
from kedge.machinery.durations import format_time

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def pod(
    name: str = "p",
    *,
    ready: float | None = 100,
    age: float = 200,
    phase: str = "Running",
    restarts: int = 0,
    node: str = "n",
    **meta: Any,
) -> Pod:
    """A pod that has been ready for so many seconds; None is not at all."""
    since = format_time(NOW - timedelta(seconds=ready or 0))
    status = {
        "phase": phase,
        "conditions": [
            {"type": "Ready", "status": "False" if ready is None else "True"}
            | {"lastTransitionTime": since}
        ],
        "containerStatuses": [{"name": "main", "restartCount": restarts, "image": "i"}],
    }
    created = format_time(NOW - timedelta(seconds=age))
    document = {
        "metadata": {"name": name, "uid": name, "creationTimestamp": created, **meta},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "i"}]},
        "status": status,
    }
    return RESOURCE.decode(msgspec.json.encode(document))


def test_a_pod_is_available_once_it_has_been_ready_for_long_enough() -> None:
    assert is_available(pod(ready=0), 0, NOW)
    assert not is_available(pod(ready=None), 0, NOW)
    assert not is_available(pod(ready=9), 10, NOW)
    assert is_available(pod(ready=10), 10, NOW)
    assert available_in(pod(ready=4), 10, NOW) == 6
    assert available_in(pod(ready=None), 10, NOW) is None


def test_a_pod_is_active_until_it_ends_or_is_deleted() -> None:
    assert is_active(pod())
    assert not is_active(pod(phase="Failed"))
    assert not is_active(pod(deletionTimestamp=format_time(NOW)))


COST = "controller.kubernetes.io/pod-deletion-cost"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("b", node=""), pod("a")),
        (pod("b", phase="Pending"), pod("a")),
        (pod("b", ready=None), pod("a")),
        (pod("b", annotations={COST: "-5"}), pod("a")),
        (pod("b"), pod("a", annotations={COST: "5"})),
        (pod("b", node="full"), pod("a")),
        (pod("b", ready=10), pod("a", ready=100)),
        (pod("b", restarts=3), pod("a")),
        (pod("b", age=110), pod("a", age=3000)),
        (pod("a", age=200), pod("b", age=201)),
    ],
    ids=[
        "not bound",
        "pending",
        "not ready",
        "cheap",
        "dear",
        "on the fuller node",
        "ready for less",
        "restarted more",
        "younger",
        "about as old: by uid",
    ],
)
def test_who_is_missed_least_goes_first(first: Pod, second: Pod) -> None:
    neighbours = {"full": 2, "n": 1}
    ordered = sorted([second, first], key=lambda each: expendable_first(each, neighbours, NOW))
    assert [each.metadata.name for each in ordered] == [
        first.metadata.name,
        second.metadata.name,
    ]
