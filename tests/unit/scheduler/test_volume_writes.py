"""Pods whose claims are bound on the node that the scheduler picks."""

import asyncio
from typing import Any

from tests.unit.scheduler.test_scheduler import Cluster, scheduled

from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import RESOURCE, PersistentVolumeClaim
from kedge.client.client import Client
from kedge.client.informer import Key
from kedge.client.transport import Call, LocalTransport
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.storage import Storage, VolumePlan
from kedge.scheduler.volume_writes import ClaimBinding
from kedge.testing.clock import FakeClock
from kedge.web.message import Response

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
SELECTED = "volume.kubernetes.io/selected-node"


async def waiting_claim(cluster: Cluster, provisioner: str) -> None:
    document = {
        "metadata": {"name": "late"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await cluster.server.post("/apis/storage.k8s.io/v1/storageclasses", document)
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "late",
    }
    await cluster.server.post(CLAIMS, {"metadata": {"name": "data"}, "spec": spec})


async def pod(cluster: Cluster) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    await cluster.pod("p", volumes=volumes)


async def bind(cluster: Cluster, volume: str) -> None:
    """Do the part of the binding controller."""
    marks = {"pv.kubernetes.io/bind-completed": "yes"}
    patch: dict[str, Any] = {"metadata": {"annotations": marks}, "spec": {"volumeName": volume}}
    await cluster.server.merge(f"{CLAIMS}/data", patch)
    await cluster.server.merge(f"{CLAIMS}/data/status", {"status": {"phase": "Bound"}})


async def test_a_pod_waits_until_its_volume_is_made_for_its_node() -> None:
    async with scheduled() as cluster:
        await cluster.node("a")
        await waiting_claim(cluster, "disk.example")
        await pod(cluster)
        assert await cluster.home("p") == ""
        claim = await cluster.server.get(f"{CLAIMS}/data")
        assert claim["metadata"]["annotations"] == {SELECTED: "a"}
        await bind(cluster, "made")
        assert await cluster.home("p") == "a"


async def test_a_provisioner_that_gives_up_lets_the_scheduler_choose_again() -> None:
    async with scheduled() as cluster:
        await cluster.node("a")
        await waiting_claim(cluster, "disk.example")
        await pod(cluster)
        assert await cluster.home("p") == ""
        gone = {"metadata": {"annotations": {SELECTED: None}}}
        await cluster.server.merge(f"{CLAIMS}/data", gone)
        message = 'binding volumes: provisioning failed for PVC "data"'
        said = f'running PreBind plugin "VolumeBinding": {message}'
        assert ("Warning", "FailedScheduling", said) in await cluster.events("p")


async def test_an_existing_volume_gets_the_claim() -> None:
    async with scheduled() as cluster:
        await cluster.node("a")
        await waiting_claim(cluster, "kubernetes.io/no-provisioner")
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/data"},
            "storageClassName": "late",
        }
        await cluster.server.post(VOLUMES, {"metadata": {"name": "pv"}, "spec": spec})
        status = {"status": {"phase": "Available"}}
        await cluster.server.merge(f"{VOLUMES}/pv/status", status)
        await pod(cluster)
        assert await cluster.home("p") == ""
        volume = await cluster.server.get(f"{VOLUMES}/pv")
        assert volume["spec"]["claimRef"]["name"] == "data"
        await bind(cluster, "pv")
        assert await cluster.home("p") == "a"


def unbound(version: int, **annotations: str) -> PersistentVolumeClaim:
    meta = {"name": "data", "namespace": "default", "resourceVersion": str(version)}
    return RESOURCE.from_document({"metadata": {**meta, "annotations": annotations}})


async def refused(call: Call) -> Response:
    raise AssertionError(call.path)


async def test_a_provisioner_that_gives_up_before_its_wish_is_known_is_noticed() -> None:
    storage, clock = Storage(), FakeClock()
    binding = ClaimBinding(Client(LocalTransport(refused)), storage, clock)
    storage.claims.put(unbound(1))
    plan = VolumePlan(provisions=(unbound(1),))
    asked = {Key("default", "data"): 2}
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(binding.bound(plan, NodeState(Node()), asked))
        await clock.advance(0)
        assert not waiting.done()
        # Both changes arrive before the binding looks again.
        storage.claims.put(unbound(2, **{SELECTED: "a"}))
        storage.claims.put(unbound(3))
        assert await waiting == 'binding volumes: provisioning failed for PVC "data"'
