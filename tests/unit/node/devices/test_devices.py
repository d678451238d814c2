"""Devices for pods: given at admission, made ready at each start, taken back at the end."""

import asyncio
import json
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import (
    ContainerExtendedResourceRequest,
    PodExtendedResourceClaimStatus,
    PodStatus,
)
from kedge.deviceplugin import ContainerAllocateResponse, Device, Mount, Refused
from kedge.deviceplugin.messages import UNHEALTHY, CDIDevice, DevicePluginOptions, Owner
from kedge.node.devices.devices import NodeDevices
from kedge.node.devices.ledger import DeviceAmounts
from kedge.node.pod.dependencies import ConfigFailure, DeviceFailure
from kedge.testing.device_plugin import RESOURCE_NAME as R
from kedge.testing.device_plugin import DeviceStage, ScriptedPlugin, pod_with, until

PRE_START = DevicePluginOptions(pre_start_required=True)
PREFERS = DevicePluginOptions(get_preferred_allocation_available=True)
RELEASES = DevicePluginOptions(release_required=True)


async def refused(devices: NodeDevices, pod: Pod) -> str:
    with pytest.raises(DeviceFailure) as caught:
        await devices.allocate(pod)
    assert caught.value.reason == "UnexpectedAdmissionError"
    text = caught.value.message
    assert text.startswith("Allocate failed due to ")
    assert text.endswith(", which is unexpected")
    return text.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")


def held(devices: NodeDevices, uid: str = "u") -> dict[str, list[str]]:
    """By container: ids of devices."""
    return {
        container: [each.resourceID for status in statuses for each in status.resources]
        for container, statuses in devices.health(uid).items()
    }


# Admission.


async def test_cdi_devices_with_hooks_are_refused_at_allocation(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(ids=["d-0"]))
    plugin.answer = ContainerAllocateResponse(cdi_devices=[CDIDevice(name="vendor.com/net=one")])
    hooks = [{"hookName": "createContainer", "path": "/bin/true"}]
    spec = {"kind": "vendor.com/net", "devices": [{"name": "one", "containerEdits": {}}]}
    stage.cdi.mkdir()
    (stage.cdi / "spec.json").write_text(json.dumps({**spec, "containerEdits": {"hooks": hooks}}))
    why = await refused(devices, pod_with(1))
    assert why == "CDI devices vendor.com/net=one: this node does not support hooks"
    assert held(devices) == {}
    (stage.cdi / "spec.json").write_text(json.dumps(spec))
    await devices.allocate(pod_with(1))
    assert held(devices) == {"c0": ["d-0"]}


async def test_each_container_gets_its_own(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(ids=["d-0", "d-1", "d-2"]))
    await devices.allocate(pod_with(1, 2))
    assert held(devices) == {"c0": ["d-0"], "c1": ["d-1", "d-2"]}
    assert plugin.calls == [("allocate", ("d-0",)), ("allocate", ("d-1", "d-2"))]


async def test_a_resource_that_a_claim_provides_is_not_asked_of_the_plugin(
    stage: DeviceStage,
) -> None:
    devices = await stage.begin()
    await stage.plug(ScriptedPlugin(ids=["d-0"]))
    mapping = ContainerExtendedResourceRequest(containerName="c0", resourceName=R, requestName="r")
    status = PodExtendedResourceClaimStatus(requestMappings=[mapping], resourceClaimName="x")
    pod = replace(pod_with(1, 1), status=PodStatus(extendedResourceClaimStatus=status))
    await devices.allocate(pod)
    assert held(devices) == {"c1": ["d-0"]}


async def test_the_plugin_learns_whom_a_device_is_for(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await devices.allocate(pod_with(1))
    assert plugin.owners == [
        Owner(pod_name="pod-u", pod_namespace="default", pod_uid="u", container_name="c0")
    ]


async def test_to_allocate_again_changes_nothing(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await devices.allocate(pod_with(1))
    await devices.allocate(pod_with(1))
    assert plugin.count("allocate") == 1
    assert await refused(devices, pod_with(2)) == (
        f'pod "u" container "c0" changed request for resource "{R}" from 1 to 2'
    )


async def test_too_few_are_refused_and_nothing_is_kept(stage: DeviceStage) -> None:
    devices = await stage.begin()
    await stage.plug(ScriptedPlugin())
    assert await refused(devices, pod_with(1, 2)) == (
        f"requested number of devices unavailable for {R}. Requested: 2, Available: 1"
    )
    assert held(devices) == {}
    await devices.allocate(pod_with(2, uid="v"))


async def test_a_resource_that_no_plugin_ever_offered_is_not_the_nodes(stage: DeviceStage) -> None:
    devices = await stage.begin()
    await devices.allocate(pod_with(1, resource="cluster.example.com/licence"))
    assert not devices.manages("cluster.example.com/licence")


async def test_a_dead_plugin_has_no_healthy_devices(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await stage.unplug(plugin)
    await until(lambda: devices.amounts() == {R: DeviceAmounts(2, 0)})
    assert await refused(devices, pod_with(1)) == (
        f"no healthy devices present; cannot allocate unhealthy devices {R}"
    )


async def test_what_the_plugin_says_is_the_reason(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    plugin.failures["allocate"] = Refused("on fire")
    assert await refused(devices, pod_with(1)) == (
        "rpc error: code = FailedPrecondition desc = on fire"
    )


async def test_an_answer_without_containers_is_refused(stage: DeviceStage) -> None:
    class Silent(ScriptedPlugin):
        async def _allocate(self, request: Any, context: Any) -> Any:
            from kedge.deviceplugin.messages import AllocateResponse

            return AllocateResponse()

    devices = await stage.begin()
    await stage.plug(Silent())
    text = await refused(devices, pod_with(1))
    assert text.startswith("no containers return in allocation response")


async def test_a_pod_that_goes_while_the_plugin_hesitates_leaves_nothing(
    stage: DeviceStage,
) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(ids=["d-0"]))
    plugin.gates["allocate"] = asyncio.Event()
    work = asyncio.ensure_future(devices.allocate(pod_with(1)))
    await until(lambda: plugin.count("allocate"))
    assert await refused(devices, pod_with(1, uid="v")) == (
        f"requested number of devices unavailable for {R}. Requested: 1, Available: 0"
    )
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    plugin.gates.clear()
    await devices.allocate(pod_with(1, uid="v"))
    assert held(devices, "v") == {"c0": ["d-0"]}


async def test_a_plugin_that_dies_while_it_allocates_fails_the_pod(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    plugin.gates["allocate"] = asyncio.Event()
    work = asyncio.ensure_future(refused(devices, pod_with(1)))
    await until(lambda: plugin.count("allocate"))
    await stage.unplug(plugin)
    assert (await work).startswith("rpc error: code = ")


async def test_what_the_plugin_prefers_is_taken_as_far_as_it_can_be_had(
    stage: DeviceStage,
) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(ids=["d-0", "d-1", "d-2"], options=PREFERS))
    plugin.preferred = ["d-2", "elsewhere"]
    await devices.allocate(pod_with(2))
    assert plugin.calls[0] == ("prefer", ("d-0", "d-1", "d-2", "|", "|", "2"))
    assert held(devices) == {"c0": ["d-0", "d-2"]}


async def test_where_there_is_no_choice_nothing_is_asked(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=PREFERS))
    await devices.allocate(pod_with(2))
    assert plugin.count("prefer") == 0


async def test_a_preference_that_fails_fails_the_pod(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=PREFERS))
    plugin.failures["prefer"] = ValueError("no idea")
    assert await refused(devices, pod_with(1)) == (
        "device plugin GetPreferredAllocation rpc failed with err: "
        "rpc error: code = Unknown desc = no idea"
    )


def init(amount: int, **more: Any) -> dict[str, Any]:
    return {"image": "i", "resources": {"limits": {R: str(amount)}}, **more}


async def test_devices_of_init_containers_are_used_again(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(ids=["d-0", "d-1"]))
    await devices.allocate(pod_with(2, initContainers=[init(1, name="i0"), init(2, name="i1")]))
    assert held(devices) == {
        "i0": ["d-0"],
        "i1": ["d-0", "d-1"],
        "c0": ["d-0", "d-1"],
    }
    assert plugin.count("allocate") == 3


async def test_sidecars_keep_theirs(stage: DeviceStage) -> None:
    devices = await stage.begin()
    await stage.plug(ScriptedPlugin(ids=["d-0", "d-1", "d-2"]))
    sidecar = init(1, name="s", restartPolicy="Always")
    await devices.allocate(pod_with(1, 1, initContainers=[init(1, name="i"), sidecar]))
    assert held(devices) == {"i": ["d-0"], "s": ["d-0"], "c0": ["d-1"], "c1": ["d-2"]}
    assert "requested number" in await refused(devices, pod_with(1, uid="v"))


# The start.


async def start(devices: NodeDevices, pod: Pod, env: dict[str, str] | None = None) -> None:
    await devices.pre_start(pod, pod.spec.containers[0], env or {})


async def test_the_plugin_learns_the_variables_at_every_start(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=PRE_START))
    pod = pod_with(2)
    await devices.allocate(pod)
    await start(devices, pod, {"A": "1", "B": "12"})
    await start(devices, pod, {"A": "2"})
    assert plugin.environments == [{"A": "1", "B": "12"}, {"A": "2"}]
    assert plugin.calls[1:] == [("pre_start", ("d-0", "d-1"))] * 2
    assert plugin.count("allocate") == 1


async def test_a_plugin_that_does_not_ask_for_it_is_not_called(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    pod = pod_with(1)
    await devices.allocate(pod)
    await start(devices, pod, {"A": "1"})
    assert plugin.environments == []


async def test_two_plugins_are_told_the_same_of_their_own_devices(stage: DeviceStage) -> None:
    devices = await stage.begin()
    one = await stage.plug(ScriptedPlugin("example.com/a", ["a"], options=PRE_START))
    two = await stage.plug(ScriptedPlugin("example.com/b", ["b"], options=PRE_START))
    container = {
        "name": "c",
        "image": "i",
        "resources": {"limits": {"example.com/a": 1, "example.com/b": 1}},
    }
    pod = pod_with(containers=[container])
    await devices.allocate(pod)
    await start(devices, pod, {"A": "1"})
    assert (one.calls[-1], two.calls[-1]) == (("pre_start", ("a",)), ("pre_start", ("b",)))
    assert one.environments == two.environments == [{"A": "1"}]


async def test_a_refusal_keeps_the_container_from_starting(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=PRE_START))
    plugin.failures["pre_start"] = Refused("wrong region")
    pod = pod_with(1)
    await devices.allocate(pod)
    with pytest.raises(ConfigFailure) as caught:
        await start(devices, pod)
    assert str(caught.value) == (
        "device plugin PreStartContainer rpc failed with err: "
        "rpc error: code = FailedPrecondition desc = wrong region"
    )


async def test_a_plugin_has_thirty_seconds(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=PRE_START))
    plugin.gates["pre_start"] = asyncio.Event()
    pod = pod_with(1)
    await devices.allocate(pod)
    work = asyncio.ensure_future(start(devices, pod))
    await until(lambda: plugin.count("pre_start"))
    await stage.clock.advance(29)
    assert not work.done()
    await stage.clock.advance(2)
    with pytest.raises(ConfigFailure) as caught:
        await work
    assert str(caught.value) == (
        "device plugin PreStartContainer rpc failed with err: "
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    )


async def test_more_than_four_megabytes_of_variables_are_too_many_for_a_stock_plugin(
    stage: DeviceStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kedge.deviceplugin.plugin._LARGEST", [])
    devices = await stage.begin()
    await stage.plug(ScriptedPlugin(options=PRE_START))
    pod = pod_with(1)
    await devices.allocate(pod)
    with pytest.raises(ConfigFailure, match="ResourceExhausted"):
        await start(devices, pod, {"A": "x" * 5 * 2**20})


async def test_bytes_that_are_no_text_are_left_out(
    stage: DeviceStage, caplog: pytest.LogCaptureFixture
) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=PRE_START))
    pod = pod_with(1)
    await devices.allocate(pod)
    binary = b"\xff hush".decode(errors="surrogateescape")
    with caplog.at_level(logging.WARNING):
        await start(devices, pod, {"A": "1", "SECRET": binary})
    assert plugin.environments == [{"A": "1"}]
    assert "SECRET" in caplog.text
    assert "hush" not in caplog.text


async def test_what_was_answered_at_admission_holds_for_every_start(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    plugin.answer = ContainerAllocateResponse(
        envs={"P": "1"}, mounts=[Mount(container_path="/in", host_path="/out")]
    )
    pod = pod_with(1)
    await devices.allocate(pod)
    plugin.answer = ContainerAllocateResponse()
    got = devices.grant(pod, pod.spec.containers[0])
    assert (got.env, [mount.host_path for mount in got.mounts]) == ({"P": "1"}, ["/out"])


# Health and the end.


async def test_pods_are_told_when_their_devices_sicken(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await devices.allocate(pod_with(1))
    plugin.offer(Device("d-0", UNHEALTHY), Device("d-1"))
    await until(lambda: stage.pods_told == ["u"])
    (status,) = devices.health("u")["c0"]
    assert (status.name, status.resources[0].health) == (R, "Unhealthy")


async def test_a_pod_gives_back_what_it_had(stage: DeviceStage) -> None:
    devices = await stage.begin()
    await stage.plug(ScriptedPlugin())
    await devices.allocate(pod_with(2))
    assert set(devices.pod_uids()) == {"u"}
    devices.release("u")
    devices.release("u")
    await devices.allocate(pod_with(2, uid="v"))


async def test_the_next_container_waits_until_the_plugin_knows_of_the_last_ones_end(
    stage: DeviceStage,
) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(ids=["d-0"], options=RELEASES))
    await devices.allocate(pod_with(1))
    plugin.gates["release"] = asyncio.Event()
    devices.release("u")
    await until(lambda: plugin.count("release"))
    work = asyncio.ensure_future(devices.allocate(pod_with(1, uid="v")))
    await stage.clock.advance(1)
    assert not work.done()
    plugin.gates["release"].set()
    await work
    assert [name for name, _ in plugin.calls] == ["allocate", "release", "allocate"]


async def test_the_next_pod_waits_for_the_devices_of_a_deleted_pod_that_still_runs(
    stage: DeviceStage,
) -> None:
    devices = await stage.begin()
    await stage.plug(ScriptedPlugin(ids=["d-0"]))
    await devices.allocate(pod_with(1))
    stage.removed.add("u")
    work = asyncio.ensure_future(devices.allocate(pod_with(1, uid="v")))
    await stage.clock.advance(3600)
    assert not work.done()
    devices.release("u")
    await work
    assert set(devices.pod_uids()) == {"v"}


async def test_a_release_is_said_until_it_is_acknowledged(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=RELEASES))
    await devices.allocate(pod_with(1))
    plugin.failures["release"] = ValueError("not now")
    whole, told = devices.amounts()[plugin.resource], stage.node_told
    devices.release("u")
    assert devices.amounts()[plugin.resource] == (whole.capacity, whole.allocatable - 1)
    assert stage.node_told > told
    await until(lambda: plugin.count("release") == 1)
    await stage.passing(lambda: plugin.count("release") == 2)
    await stage.unplug(plugin)
    await stage.end()
    await stage.begin()
    back = await stage.plug(ScriptedPlugin(options=RELEASES))
    await until(lambda: back.calls == [("release", ("d-0",))])
    await until(lambda: stage.devices.amounts()[back.resource] == whole)


async def test_a_plugin_that_does_not_answer_delays_no_other(stage: DeviceStage) -> None:
    devices = await stage.begin()
    silent = await stage.plug(ScriptedPlugin(options=RELEASES))
    other = await stage.plug(ScriptedPlugin("example.com/other", options=RELEASES))
    await devices.allocate(pod_with(1))
    await devices.allocate(pod_with(1, uid="v", resource=other.resource))
    silent.gates["release"] = asyncio.Event()
    devices.release("u")
    await until(lambda: silent.count("release"))
    devices.release("v")
    await until(lambda: other.count("release"))
    silent.gates["release"].set()


# Restarts, in any order.


async def test_the_agent_knows_after_a_restart_who_has_what(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=PRE_START))
    plugin.answer = ContainerAllocateResponse(envs={"P": "1"})
    pod = pod_with(1)
    await devices.allocate(pod)
    await stage.unplug(plugin)
    await stage.end()
    devices = await stage.begin()
    assert devices.grant(pod, pod.spec.containers[0]).env == {"P": "1"}
    assert devices.amounts() == {R: DeviceAmounts(0, 0)}
    assert (
        await refused(devices, pod_with(1, uid="v")) == f"cannot allocate unregistered device {R}"
    )


async def test_nothing_starts_unprogrammed_while_its_plugin_is_away(stage: DeviceStage) -> None:
    """Upstream forgets in a restart which plugins want to be called."""
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(options=PRE_START))
    pod = pod_with(1)
    await devices.allocate(pod)
    await stage.unplug(plugin)
    await stage.end()
    devices = await stage.begin()
    with pytest.raises(ConfigFailure, match="PreStartContainer rpc failed with err: endpoint"):
        await start(devices, pod)
    back = await stage.plug(ScriptedPlugin(options=PRE_START))
    await start(devices, pod)
    assert back.calls == [("pre_start", ("d-0",))]


async def test_a_pod_that_was_here_before_waits_for_its_plugin(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await devices.allocate(pod_with(1))
    await stage.unplug(plugin)
    await stage.end()
    devices = await stage.begin()
    work = asyncio.ensure_future(devices.allocate(pod_with(1)))
    await stage.clock.advance(30)
    assert not work.done()
    back = await stage.plug(ScriptedPlugin())
    await work
    assert back.count("allocate") == 0
    assert held(devices) == {"c0": ["d-0"]}


async def test_but_not_for_ever(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await devices.allocate(pod_with(1))
    await stage.unplug(plugin)
    await stage.end()
    devices = await stage.begin()
    work = asyncio.ensure_future(refused(devices, pod_with(1)))
    await stage.clock.advance(61)
    assert await work == f"cannot allocate unregistered device {R}"


async def test_a_device_that_did_not_come_back_well_is_refused(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await devices.allocate(pod_with(1))
    plugin.offer(Device("d-0", UNHEALTHY), Device("d-1"))
    await until(lambda: stage.pods_told)
    assert await refused(devices, pod_with(1)) == (
        f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {R}"
    )


async def test_a_node_simulates_devices_itself(stage: DeviceStage) -> None:
    devices = await stage.begin(simulated={"example.com/toy": 3})
    await devices.simulated()
    assert devices.amounts() == {"example.com/toy": DeviceAmounts(3, 3)}
    pod = pod_with(2, resource="example.com/toy")
    await devices.allocate(pod)
    got = devices.grant(pod, pod.spec.containers[0])
    assert got.env == {"EXAMPLE_COM_TOY": "toy-0,toy-1"}
