"""Pods as policies see them."""

from ipaddress import IPv4Address
from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.pod import pod_addresses
from kedge.node.policies.policy_objects import NamedPodPort, PolicyPod, policy_pod


def seen(spec: dict[str, Any], **status: str) -> PolicyPod | None:
    meta = {"name": "a", "namespace": "x", "labels": {"app": "1"}}
    document = {"metadata": meta, "spec": spec, "status": status}
    return policy_pod(pod_addresses.decode(msgspec.json.encode(document)))


def test_named_ports_are_those_of_containers_and_sidecars() -> None:
    spec = {
        "containers": [{"ports": [{"name": "www", "containerPort": 80}, {"containerPort": 1}]}],
        "initContainers": [
            {"ports": [{"name": "first", "containerPort": 2}]},
            {
                "restartPolicy": "Always",
                "ports": [{"name": "side", "containerPort": 3, "protocol": "UDP"}],
            },
        ],
    }
    ports = (NamedPodPort("www", "TCP", 80), NamedPodPort("side", "UDP", 3))
    address = IPv4Address("10.0.0.1")
    expected = PolicyPod("x", "a", {"app": "1"}, address, ports)
    assert seen(spec, phase="Running", podIP="10.0.0.1") == expected


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"hostNetwork": True}, {"podIP": "10.0.0.1"}),
        ({}, {"phase": "Succeeded", "podIP": "10.0.0.1"}),
        ({}, {"phase": "Failed"}),
    ],
)
def test_pods_without_an_address_of_their_own(spec: dict[str, Any], status: dict[str, str]) -> None:
    assert seen(spec, **status) is None


def test_a_pod_has_no_address_before_it_starts_or_one_of_another_family() -> None:
    for each in ({}, {"podIP": "fd00::1"}):
        pod = seen({}, **each)
        assert pod is not None
        assert pod.address is None
