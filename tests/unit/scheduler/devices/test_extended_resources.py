"""The requests and mappings for a pod's extended resources, as kube-scheduler writes them."""

from typing import Any

import pytest

from kedge.scheduler.devices.extended_resources import extended_resource_claim
from kedge.testing.pods import new_pod

GPU, NIC = "a.example/gpu", "a.example/nic"
CLASSES = {GPU: "gpus", NIC: "nics"}


def container(name: str, **amounts: int) -> dict[str, Any]:
    known = {"gpu": GPU, "nic": NIC, "cpu": "cpu"}
    wants = {known[each]: str(amount) for each, amount in amounts.items()}
    return {"name": name, "image": "i", "resources": {"requests": wants, "limits": wants}}


def sidecar(name: str, **amounts: int) -> dict[str, Any]:
    return {**container(name, **amounts), "restartPolicy": "Always"}


CASES: dict[str, tuple[list[Any], list[Any], list[str], list[str]]] = {
    "one container": (
        [],
        [container("c", gpu=2)],
        ["container-0-request-0 gpus 2"],
        ["c gpu container-0-request-0"],
    ),
    "the index is that among all requests of the container, by name": (
        [],
        [container("c", cpu=1, gpu=1, nic=1)],
        ["container-0-request-0 gpus 1", "container-0-request-1 nics 1"],
        ["c gpu container-0-request-0", "c nic container-0-request-1"],
    ),
    "containers that run together have requests of their own": (
        [sidecar("s", gpu=1)],
        [container("c", gpu=1), container("none")],
        ["container-0-request-0 gpus 1", "container-1-request-0 gpus 1"],
        ["s gpu container-0-request-0", "c gpu container-1-request-0"],
    ),
    "an init container uses the devices of later containers": (
        [container("i", gpu=1)],
        [container("c", gpu=2)],
        ["container-1-request-0 gpus 2"],
        ["c gpu container-1-request-0", "i gpu container-1-request-0"],
    ),
    "an init container requests what later containers lack": (
        [container("i", gpu=3)],
        [container("c", gpu=1)],
        ["container-0-request-0 gpus 2", "container-1-request-0 gpus 1"],
        [
            "c gpu container-1-request-0",
            "i gpu container-1-request-0",
            "i gpu container-0-request-0",
        ],
    ),
    "init containers share the largest request": (
        [container("i", gpu=1), container("j", gpu=2)],
        [container("c")],
        ["container-1-request-0 gpus 2"],
        ["i gpu container-1-request-0", "j gpu container-1-request-0"],
    ),
    "an init container does not use the devices of sidecars before it": (
        [sidecar("s", gpu=1), container("i", gpu=1)],
        [container("c")],
        ["container-0-request-0 gpus 1", "container-1-request-0 gpus 1"],
        ["s gpu container-0-request-0", "i gpu container-1-request-0"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_requests_and_mappings(case: str) -> None:
    init, containers, requests, mappings = CASES[case]
    pod = new_pod(spec={"initContainers": init, "containers": containers})
    found = extended_resource_claim(pod, CLASSES)
    assert [
        f"{each.name} {each.exactly.deviceClassName} {each.exactly.count}"
        for each in found.claim.spec.devices.requests
        if each.exactly is not None and each.exactly.allocationMode == "ExactCount"
    ] == requests
    assert [
        f"{each.containerName} {each.resourceName.partition('/')[2]} {each.requestName}"
        for each in found.mappings
    ] == mappings


def test_only_the_given_resources_are_requested() -> None:
    pod = new_pod(spec={"containers": [container("c", gpu=1, nic=1)]})
    found = extended_resource_claim(pod, {NIC: "nics"})
    assert [each.name for each in found.claim.spec.devices.requests] == ["container-0-request-1"]


def test_the_claim_belongs_to_the_pod() -> None:
    pod = new_pod(metadata={"name": "p", "namespace": "n", "uid": "1"})
    meta = extended_resource_claim(pod, {}).claim.metadata
    [owner] = meta.ownerReferences
    assert (meta.namespace, meta.generateName) == ("n", "p-extended-resources-")
    assert meta.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Pod", "p", "1", True)
    assert owner.blockOwnerDeletion is None
