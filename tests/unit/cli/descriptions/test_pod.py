"""Pods, described."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kedge.cli.descriptions.container import probe
from kedge.cli.descriptions.parts import RelatedObjects
from kedge.cli.descriptions.pod import describe, toleration

ABOUT = RelatedObjects(now=datetime(2030, 1, 1, 0, 1, tzinfo=UTC), events=[])

POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "n", "labels": {"app": "web"}},
    "spec": {
        "priority": 0,
        "serviceAccountName": "default",
        "nodeName": "one",
        "initContainers": [{"name": "init", "image": "busybox", "args": ["a", "b\nc"]}],
        "containers": [
            {
                "name": "main",
                "image": "nginx",
                "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}],
                "resources": {"limits": {"memory": "64Mi", "cpu": "1"}},
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "volumeMounts": [{"name": "e", "mountPath": "/e", "readOnly": True}],
            }
        ],
        "volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"defaultMode": 420}}],
        "tolerations": [{"operator": "Exists"}],
    },
    "status": {
        "phase": "Running",
        "hostIP": "10.0.0.9",
        "qosClass": "Burstable",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": False,
                "restartCount": 1,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "OOMKilled",
                        "startedAt": "2030-01-01T00:00:00Z",
                        "finishedAt": "2030-01-01T00:00:01Z",
                    }
                },
            }
        ],
    },
}


def told(pod: dict[str, Any]) -> list[str]:
    """The lines, their gaps made one blank."""
    return [" ".join(line.split()) for line in describe(pod, ABOUT).splitlines()]


def test_a_pod_is_told_in_the_order_that_people_know_from_kubectl() -> None:
    heads = [line for line in describe(POD, ABOUT).splitlines() if not line.startswith(" ")]
    assert [head.partition(":")[0] for head in heads] == [
        *("Name", "Namespace", "Priority", "Service Account", "Node", "Labels", "Annotations"),
        *("Status", "IP", "IPs", "Init Containers", "Containers", "Conditions", "Volumes"),
        *("QoS Class", "Node-Selectors", "Tolerations", "Events"),
    ]


def test_why_a_container_ended_is_told() -> None:
    lines = told(POD)
    at = lines.index("Last State: Terminated")
    assert lines[at - 2 : at + 3] == [
        "State: Waiting",
        "Reason: CrashLoopBackOff",
        "Last State: Terminated",
        "Reason: OOMKilled",
        "Exit Code: 137",
    ]
    assert lines[at + 5 : at + 7] == ["Ready: False", "Restart Count: 1"]


def test_what_a_container_is_given_is_told() -> None:
    lines = told(POD)
    for line in (
        "Node: one/10.0.0.9",
        "Port: 80/TCP (http)",
        "memory: 64Mi",
        "A: b",
        "N: web (v1:metadata.name)",
        "S: <set to the key 'k' in secret 's'> Optional: false",
        "/e from e (ro)",
        "Type: EmptyDir",
        "Default Mode: 0644",
        "QoS Class: Burstable",
        "Tolerations: op=Exists",
    ):
        assert line in lines


def test_a_pod_that_is_ending_says_since_when() -> None:
    metadata = {
        **POD["metadata"],
        "deletionTimestamp": "2030-01-01T00:00:30Z",
        "deletionGracePeriodSeconds": 30,
    }
    lines = told({**POD, "metadata": metadata})
    assert "Status: Terminating (lasts 30s)" in lines
    assert "Termination Grace Period: 30s" in lines


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, "k=v:NoSchedule"),
        (
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            "k:NoExecute op=Exists for 300s",
        ),
    ],
)
def test_a_toleration_is_one_phrase(values: dict[str, Any], text: str) -> None:
    assert toleration(values) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"httpGet": {"path": "/x", "port": 80}}, "http-get http://:80/x "),
        ({"tcpSocket": {"port": "http"}}, "tcp-socket :http "),
        ({"exec": {"command": ["a", "b"]}}, "exec [a b] "),
        ({"grpc": {"port": 1, "service": "s"}}, "grpc <pod>:1 s "),
    ],
)
def test_a_probe_is_one_phrase(values: dict[str, Any], text: str) -> None:
    manner = "delay=0s timeout=1s period=10s #success=1 #failure=3"
    assert probe(values) == text + manner
