"""The node in the eyes of the cluster, from its first report to its deletion by mistake."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import ContainerImage, Node, NodeStatus
from kedge.machinery.quantity import Quantity
from kedge.node.config import NodeConfig
from kedge.node.host.machine import MachineInfo
from kedge.node.host.registration import (
    Images,
    NodeRegistration,
    allocatable,
    node_object,
    report_seconds,
    updated_node,
)
from kedge.node.runtime.runtime import RuntimeFeatures
from kedge.supervisor.machine_capabilities import FULL, of_level
from kedge.testing.local_server import LocalServer
from kedge.testing.node import FakeDevices

NODE = "/api/v1/nodes/box"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/box"
CONFIG = NodeConfig(
    name="box",
    cluster="test",
    state=Path("/nowhere"),
    images=Path("/nowhere"),
    labels={"zone": "a"},
    reserved={"cpu": Quantity.parse("500m")},
)
MACHINE = MachineInfo(
    hostname="box",
    cpus=4,
    memory=8 * 2**30 + 1,
    disk=10 * 2**30,
    hugepages={"2Mi": 4 * 2**20},
    kernel="6.1.0",
    os_image="Debian",
    architecture="amd64",
)
OURS = node_object(
    CONFIG,
    MACHINE,
    of_level(FULL),
    port=10250,
    pod_cidr="10.244.3.0/24",
    user_namespaces=True,
    features=RuntimeFeatures(strict_groups=True, recursive_read_only=True),
)
IMAGES = [ContainerImage(names=["host"], sizeBytes=1)]


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


def registration(server: LocalServer) -> NodeRegistration:
    return _registration(server, lambda: IMAGES)


def _registration(
    server: LocalServer,
    images: Images,
    full: Callable[[], bool] = bool,
    cluster_size: Callable[[], int] = int,
) -> NodeRegistration:
    return NodeRegistration(
        server.client,
        server.clock,
        OURS,
        images,
        FakeDevices(),
        has_disk_pressure=full,
        cluster_size=cluster_size,
    )


async def registered(server: LocalServer) -> NodeRegistration:
    node = registration(server)
    server.start(node.run())
    await server.settle()
    assert node.registered.is_set()
    return node


def condition(node: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in node["status"]["conditions"] if c["type"] == kind)
    return found


async def test_node_presents_itself_and_is_ready(server: LocalServer) -> None:
    await registered(server)
    node = await server.get(NODE)
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "box"
    assert node["metadata"]["labels"]["kedge.dev/level"] == "full"
    assert node["metadata"]["labels"]["zone"] == "a"
    assert node["spec"]["podCIDR"] == "10.244.3.0/24"
    status = node["status"]
    assert status["capacity"] == {
        "cpu": "4",
        "ephemeral-storage": "10Gi",
        "hugepages-2Mi": "4Mi",
        "memory": "8Gi",
        "pods": "110",
    }
    assert status["allocatable"]["cpu"] == "3500m"
    assert status["addresses"] == [
        {"type": "InternalIP", "address": "127.0.0.1"},
        {"type": "Hostname", "address": "box"},
    ]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert status["nodeInfo"]["kubeletVersion"].endswith("+kedge")
    assert status["images"] == [{"names": ["host"], "sizeBytes": 1}]
    features = {"recursiveReadOnlyMounts": True, "userNamespaces": True}
    assert status["runtimeHandlers"] == [{"features": features}]
    assert condition(node, "Ready")["reason"] == "KubeletReady"
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }


async def test_lease_belongs_to_the_node_and_is_renewed(server: LocalServer) -> None:
    await registered(server)
    lease = await server.get(LEASE)
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert lease["metadata"]["ownerReferences"][0]["kind"] == "Node"
    await server.clock.advance(10)
    renewed = await server.get(LEASE)
    assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]


async def test_node_of_an_earlier_life_is_taken_over(server: LocalServer) -> None:
    body: dict[str, Any] = {
        "metadata": {"name": "box", "labels": {"mine": "kept"}},
        "spec": {"unschedulable": True, "podCIDR": "10.244.9.0/24"},
        "status": {
            "capacity": {"cpu": "1", "example.com/dev": "2"},
            "conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "X", "status": "True"}],
        },
    }
    await server.post("/api/v1/nodes", body)
    await registered(server)
    node = await server.get(NODE)
    assert node["metadata"]["labels"]["mine"] == "kept"
    assert node["metadata"]["labels"]["zone"] == "a"
    assert node["spec"]["unschedulable"] is True
    assert node["spec"]["podCIDR"] == "10.244.9.0/24"
    assert node["status"]["capacity"]["cpu"] == "4"
    assert node["status"]["capacity"]["example.com/dev"] == "2"
    assert condition(node, "Ready")["status"] == "True"
    assert condition(node, "X")["status"] == "True"


async def test_unchanged_status_is_reported_every_five_minutes_only(server: LocalServer) -> None:
    await registered(server)
    first = await server.get(NODE)
    await server.clock.advance(200)
    assert await server.get(NODE) == first
    await server.clock.advance(120)
    later = await server.get(NODE)
    ready, before = condition(later, "Ready"), condition(first, "Ready")
    assert ready["lastHeartbeatTime"] > before["lastHeartbeatTime"]
    assert ready["lastTransitionTime"] == before["lastTransitionTime"]


async def test_an_unchanged_status_is_reported_less_often_in_a_large_cluster(
    server: LocalServer,
) -> None:
    node = _registration(server, lambda: IMAGES, cluster_size=lambda: 2_000)
    server.start(node.run())
    await server.settle()
    first = await server.get(NODE)
    await server.clock.advance(590)
    assert await server.get(NODE) == first
    await server.clock.advance(30)
    later = await server.get(NODE)
    ready, before = condition(later, "Ready"), condition(first, "Ready")
    assert ready["lastHeartbeatTime"] > before["lastHeartbeatTime"]


@pytest.mark.parametrize(
    ("nodes", "seconds"), [(0, 300), (1, 300), (1_000, 300), (5_000, 1_500), (10_000, 3_000)]
)
def test_the_reports_of_a_cluster_do_not_grow_with_the_square_of_its_nodes(
    nodes: int, seconds: float
) -> None:
    assert report_seconds(nodes) == seconds


async def test_false_report_by_others_is_put_right(server: LocalServer) -> None:
    await registered(server)
    untrue = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await server.merge(f"{NODE}/status", untrue)
    await server.clock.advance(11)
    assert condition(await server.get(NODE), "Ready")["status"] == "True"


async def test_new_image_is_reported_when_told_of(server: LocalServer) -> None:
    images = list(IMAGES)
    node = _registration(server, lambda: images)
    server.start(node.run())
    await server.settle()
    images.append(ContainerImage(names=["web"], sizeBytes=2))
    node.report_soon()
    await server.settle()
    assert [i["names"] for i in (await server.get(NODE))["status"]["images"]] == [["host"], ["web"]]


async def test_a_disk_that_fills_up_is_a_condition_of_the_node(server: LocalServer) -> None:
    is_full = False
    server.start(_registration(server, lambda: IMAGES, lambda: is_full).run())
    await server.settle()
    assert condition(await server.get(NODE), "DiskPressure")["status"] == "False"
    is_full = True
    await server.clock.advance(11)
    await server.settle()
    found = condition(await server.get(NODE), "DiskPressure")
    assert (found["status"], found["reason"]) == ("True", "KubeletHasDiskPressure")
    assert found["message"] == "kubelet has disk pressure"
    assert found["lastTransitionTime"] == found["lastHeartbeatTime"]


async def test_node_that_somebody_deletes_comes_back(server: LocalServer) -> None:
    node = await registered(server)
    uid = node.node.metadata.uid
    await server.delete(NODE)
    await server.clock.advance(1)
    assert (await server.get(NODE))["metadata"]["uid"] != uid


def test_reservation_beyond_capacity_leaves_nothing() -> None:
    left = allocatable({"cpu": Quantity.parse("1")}, {"cpu": Quantity.parse("2")})
    assert str(left["cpu"]) == "0"


def test_the_way_of_services_is_an_annotation_and_those_of_others_stay() -> None:
    def described(way: str) -> Node:
        said = {"kedge.dev/service-proxy": way}
        return node_object(CONFIG, MACHINE, of_level(FULL), port=10250, annotations=said)

    found = described("userspace: the kernel refuses nf_tables")
    theirs = replace(found.metadata, annotations={**found.metadata.annotations, "a": "b"})
    updated = updated_node(replace(found, metadata=theirs), described("nftables"))
    assert updated.metadata.annotations == {"kedge.dev/service-proxy": "nftables", "a": "b"}


async def test_an_annotation_is_reported_and_dropped_when_it_is_no_longer_true(
    server: LocalServer,
) -> None:
    await server.post("/api/v1/nodes", {"metadata": {"name": "box", "annotations": {
        "kedge.dev/machine-address": "192.0.2.7/24", "a": "b"
    }}})  # fmt: skip
    node = await registered(server)
    assert (await server.get(NODE))["metadata"]["annotations"] == {"a": "b"}
    node.annotate("kedge.dev/node-network", "auto (routes)")
    await server.settle()
    assert (await server.get(NODE))["metadata"]["annotations"] == {
        "a": "b",
        "kedge.dev/node-network": "auto (routes)",
    }


async def test_a_node_that_was_claimed_is_registered_with_its_network(server: LocalServer) -> None:
    claimed = await server.client.create(RESOURCE, replace(OURS, status=NodeStatus()))
    node = NodeRegistration(
        server.client,
        server.clock,
        OURS,
        lambda: IMAGES,
        FakeDevices(),
        claimed=claimed,
        has_disk_pressure=bool,
        cluster_size=int,
    )
    server.start(node.run())
    await server.settle()
    found = await server.get(NODE)
    assert found["metadata"]["uid"] == claimed.metadata.uid
    assert condition(found, "Ready")["status"] == "True"
