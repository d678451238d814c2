"""Who has which devices, asked over the socket."""

from typing import Any

import pytest

from kedge.deviceplugin import UNHEALTHY, Device, NUMANode, TopologyInfo, library, methods
from kedge.deviceplugin import messages as m
from kedge.deviceplugin import pod_resources as r
from kedge.testing.device_plugin import RESOURCE_NAME as R
from kedge.testing.device_plugin import DeviceStage, ScriptedPlugin, pod_with


async def ask(stage: DeviceStage, method: methods.Method[Any, Any], request: Any) -> Any:
    grpc = library.load()
    where = f"unix:{stage.devices.places.resources / 'kubelet.sock'}"
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(where, options=options) as channel:
        try:
            return await methods.caller(channel, method)(request, timeout=10)
        except grpc.aio.AioRpcError as error:
            return library.refusal(error)


@pytest.fixture
async def busy(stage: DeviceStage) -> DeviceStage:
    devices = await stage.begin()
    plugin = ScriptedPlugin()
    near = TopologyInfo(nodes=[NUMANode(id=0), NUMANode(id=1)])
    plugin.offered = [Device("d-0", topology=near), Device("d-1"), Device("d-2", UNHEALTHY)]
    await stage.plug(plugin)
    plain = {"name": "plain", "image": "i"}
    sidecar = {"name": "side", "image": "i", "restartPolicy": "Always"}
    pod = pod_with(2, initContainers=[plain, sidecar])
    await devices.allocate(pod)
    stage.pods = [pod, pod_with(uid="v", containers=[{"name": "c", "image": "i"}])]
    return stage


async def test_all_pods_are_listed_one_entry_for_each_device(busy: DeviceStage) -> None:
    found = (await ask(busy, r.LIST, m.Empty())).pod_resources
    assert [(pod.namespace, pod.name) for pod in found] == [
        ("default", "pod-u"),
        ("default", "pod-v"),
    ]
    side, main = found[0].containers
    assert (side.name, list(side.devices)) == ("side", [])
    assert [(d.resource_name, d.device_ids) for d in main.devices] == [(R, ["d-0"]), (R, ["d-1"])]
    assert [node.id for node in main.devices[0].topology.nodes] == [0, 1]
    assert main.devices[1].topology is None


async def test_the_old_version_groups_them(busy: DeviceStage) -> None:
    (main,) = (await ask(busy, r.LIST_ALPHA, m.Empty())).pod_resources[0].containers[1:]
    assert [(d.resource_name, d.device_ids) for d in main.devices] == [(R, ["d-0", "d-1"])]


async def test_one_pod_can_be_asked_for(busy: DeviceStage) -> None:
    asked = r.GetPodResourcesRequest(pod_name="pod-u", pod_namespace="default")
    assert (await ask(busy, r.GET, asked)).pod_resources.name == "pod-u"
    asked = r.GetPodResourcesRequest(pod_name="x", pod_namespace="y")
    assert await ask(busy, r.GET, asked) == (
        "rpc error: code = Unknown desc = pod x in namespace y not found"
    )


async def test_what_is_healthy_is_allocatable_held_or_not(busy: DeviceStage) -> None:
    found = await ask(busy, r.ALLOCATABLE, m.Empty())
    assert [each.device_ids for each in found.devices] == [["d-0"], ["d-1"]]


async def test_who_asks_too_often_is_sent_away(busy: DeviceStage) -> None:
    for _ in range(10):
        assert (await ask(busy, r.ALLOCATABLE, m.Empty())).devices
    assert await ask(busy, r.ALLOCATABLE, m.Empty()) == (
        "rpc error: code = ResourceExhausted desc = rejected by rate limit"
    )
    await busy.clock.advance(0.1)
    assert (await ask(busy, r.ALLOCATABLE, m.Empty())).devices
