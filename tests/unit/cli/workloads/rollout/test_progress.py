"""How far a rollout is."""

from typing import Any

import pytest

from kedge.cli.workloads.rollout.progress import Progress, progress

WAITING = 'Waiting for deployment "web" rollout to finish:'
LATE = {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "status": "False"}


def workload(kind: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    annotations = {"deployment.kubernetes.io/revision": "3"}
    metadata = {"name": "web", "generation": 2, "annotations": annotations}
    return {
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": {"observedGeneration": 2, **status},
    }


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"observedGeneration": 1}, "Waiting for deployment spec update to be observed..."),
        ({"updatedReplicas": 1}, f"{WAITING} 1 out of 3 new replicas have been updated..."),
        (
            {"updatedReplicas": 3, "replicas": 4},
            f"{WAITING} 1 old replicas are pending termination...",
        ),
        (
            {"updatedReplicas": 3, "replicas": 3, "availableReplicas": 2},
            f"{WAITING} 2 of 3 updated replicas are available...",
        ),
        (
            {"updatedReplicas": 3, "replicas": 3, "availableReplicas": 3},
            'deployment "web" successfully rolled out',
        ),
    ],
)
def test_the_steps_of_a_deployment(status: dict[str, Any], message: str) -> None:
    is_done = message.endswith("rolled out")
    assert progress(workload("Deployment", {"replicas": 3}, status)) == Progress(message, is_done)


def test_a_deployment_that_is_late_or_of_another_revision_fails() -> None:
    late = workload("Deployment", {}, {"conditions": [LATE]})
    assert progress(late).failure == 'deployment "web" exceeded its progress deadline'
    assert "desired revision (2)" in progress(workload("Deployment", {}, {}), 2).failure
    assert not progress(workload("Deployment", {}, {}), 3).failure


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"observedGeneration": 1}, "Waiting for daemon set spec update to be observed..."),
        (
            {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1},
            'Waiting for daemon set "web" rollout to finish: 1 out of 2 new pods have been'
            " updated...",
        ),
        (
            {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1},
            'Waiting for daemon set "web" rollout to finish: 1 of 2 updated pods are available...',
        ),
        (
            {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2},
            'daemon set "web" successfully rolled out',
        ),
    ],
)
def test_the_steps_of_a_daemon_set(status: dict[str, Any], message: str) -> None:
    assert progress(workload("DaemonSet", {}, status)).message == message


@pytest.mark.parametrize(
    ("spec", "status", "message"),
    [
        ({}, {"observedGeneration": 1}, "Waiting for statefulset spec update to be observed..."),
        ({"replicas": 2}, {"readyReplicas": 1}, "Waiting for 1 pods to be ready..."),
        (
            {"replicas": 2},
            {
                "readyReplicas": 2,
                "updatedReplicas": 1,
                "updateRevision": "b",
                "currentRevision": "a",
            },
            "waiting for statefulset rolling update to complete 1 pods at revision b...",
        ),
        (
            {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
            {"readyReplicas": 2, "updatedReplicas": 0},
            "Waiting for partitioned roll out to finish: 0 out of 1 new pods have been updated...",
        ),
        (
            {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
            {"readyReplicas": 2, "updatedReplicas": 1},
            "partitioned roll out complete: 1 new pods have been updated...",
        ),
        (
            {"replicas": 2},
            {
                "readyReplicas": 2,
                "currentReplicas": 2,
                "updateRevision": "b",
                "currentRevision": "b",
            },
            "statefulset rolling update complete 2 pods at revision b...",
        ),
    ],
)
def test_the_steps_of_a_stateful_set(
    spec: dict[str, Any], status: dict[str, Any], message: str
) -> None:
    assert progress(workload("StatefulSet", spec, status)).message == message


@pytest.mark.parametrize("kind", ["DaemonSet", "StatefulSet"])
def test_pods_that_are_replaced_by_hand_have_no_rollout(kind: str) -> None:
    made = workload(kind, {"updateStrategy": {"type": "OnDelete"}}, {})
    assert "only available for RollingUpdate" in progress(made).failure
