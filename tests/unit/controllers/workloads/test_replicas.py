from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from kedge.api.apps_v1.replica_set import ReplicaSetCondition
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.pod.status import PodCondition
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.controllers.workloads.pod_tallies import PodGroup, PodTallies
from kedge.controllers.workloads.replicas import (
    ReplicaCounts,
    ReplicaDemand,
    ReplicaFailure,
    failing,
    next_available,
    surplus,
    tally,
)
from kedge.machinery.durations import format_time
from kedge.machinery.selectors import LabelRequirements

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
TEMPLATE = PodTemplateSpec(metadata=ObjectMeta(labels={"app": "web", "tier": "front"}))
WANTED = ReplicaDemand(3, LabelRequirements(), TEMPLATE, min_ready_seconds=30)


def pod(
    name: str,
    *,
    ready: float | None = None,
    node: str = "node-1",
    phase: str = "Running",
    leaving: bool = False,
    labels: dict[str, str] | None = None,
) -> Pod:
    """A pod that has been ready for so many seconds, if it is."""
    made = Pod(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            labels=TEMPLATE.metadata.labels if labels is None else labels,
            creationTimestamp=format_time(NOW - timedelta(hours=1)),
            deletionTimestamp=format_time(NOW) if leaving else "",
        )
    )
    conditions = []
    if ready is not None:
        since = format_time(NOW - timedelta(seconds=ready))
        conditions = [PodCondition(type="Ready", status="True", lastTransitionTime=since)]
    return replace(
        made,
        spec=replace(made.spec, nodeName=node),
        status=replace(made.status, phase=phase, conditions=conditions),
    )


def groups(pods: list[Pod]) -> Collection[PodGroup]:
    """The numbers of pods, as if they had come one after the other."""
    owner = OwnerReference(kind="ReplicaSet", name="web", uid="u", controller=True)
    tallies = PodTallies("ReplicaSet")
    for each in pods:
        meta = replace(each.metadata, ownerReferences=[owner])
        tallies.changed(None, replace(each, metadata=meta))
    return tallies.of("u")


def test_pods_are_counted_by_what_they_have_come_to() -> None:
    pods = [
        pod("available", ready=30),
        pod("just ready", ready=29),
        pod("starting", phase="Pending", labels={"app": "web"}),
        pod("leaving", ready=99, leaving=True),
        pod("failed", phase="Failed"),
        pod("failed and leaving", phase="Failed", leaving=True),
    ]
    assert tally(groups(pods), WANTED, NOW) == ReplicaCounts(
        replicas=3, fully_labeled=2, ready=2, available=1, terminating=1
    )


def test_next_look_is_due_when_the_first_pod_becomes_available() -> None:
    pods = [pod("a", ready=5), pod("b", ready=12), pod("c", ready=40), pod("d")]
    assert next_available(pods, 30, NOW) == 18
    assert next_available(pods[2:], 30, NOW) is None


def test_pods_that_are_missed_least_go_first() -> None:
    pods = [
        pod("old", ready=3000),
        pod("young", ready=3),
        pod("waiting", phase="Pending", node=""),
        pod("starting", phase="Pending"),
        pod("not ready"),
    ]
    order = [each.metadata.name for each in surplus(pods, 4, {}, NOW)]
    assert order == ["waiting", "starting", "not ready", "young"]


def test_fuller_node_gives_first() -> None:
    pods = [pod("alone", ready=60, node="a"), *(pod(f"b{i}", ready=60, node="b") for i in (1, 2))]
    neighbours = Counter(each.spec.nodeName for each in pods)
    [first] = surplus(pods, 1, neighbours, NOW)
    assert first.spec.nodeName == "b"


def test_failure_is_said_once_and_taken_back() -> None:
    first = failing((), ReplicaSetCondition, ReplicaFailure("FailedCreate", "quota"), "t1")
    [said] = first
    assert (said.type, said.status, said.reason, said.message) == (
        "ReplicaFailure",
        "True",
        "FailedCreate",
        "quota",
    )
    assert (
        failing(first, ReplicaSetCondition, ReplicaFailure("FailedCreate", "still"), "t2") == first
    )
    assert list(failing(first, ReplicaSetCondition, None, "t3")) == []
