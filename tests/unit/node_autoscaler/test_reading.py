"""What decisions read from the API."""

from typing import Any

import pytest

from kedge.node_autoscaler.node_devices import ClusterDevices
from kedge.node_autoscaler.reading import read_cluster
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document

GROUP = "/apis/resource.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("wants", "is_read"),
    [
        ({}, False),
        ({"container": {"resources": {"limits": {"d.example/gpu": "1"}}}}, True),
        ({"spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}}, True),
    ],
)
async def test_devices_are_read_if_a_pod_asks_for_some(wants: Any, is_read: bool) -> None:
    async with LocalServer.running() as server:
        class_ = {"metadata": {"name": "gpus"}, "spec": {}}
        await server.post(f"{GROUP}/deviceclasses", class_)
        await server.post(PODS, pod_document(metadata={"name": "p"}, **wants))
        found = (await read_cluster(server.client)).devices
        assert bool(found.classes) == is_read
        assert is_read or found == ClusterDevices()
