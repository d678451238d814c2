"""Containers with devices: when they are given, made ready, and given back."""

from typing import Any

from kedge.node.pod.dependencies import ConfigFailure, DeviceFailure, DeviceGrant, ImageFailure
from kedge.node.runtime.runtime import ContainerConfig, ContainerDevice, ContainerMount
from kedge.testing.node import LocalNode

RESOURCE = "example.com/d"
LIMITS = {"limits": {RESOURCE: "1"}}


async def create(node: LocalNode, **container: Any) -> None:
    node.devices.resources.add(RESOURCE)
    await node.create(container={"resources": LIMITS, **container})


def spec_of(node: LocalNode) -> ContainerConfig:
    return node.runtime.specs[node.runtime.newest("ctr").id]


async def test_a_plugin_is_told_what_the_pod_defines_and_nothing_else(node: LocalNode) -> None:
    node.devices.gifts = DeviceGrant(env={"A": "plugin", "P": "1"})
    await create(node, env=[{"name": "A", "value": "1"}], command=["run", "$(P)"])
    assert node.devices.started == [{"A": "1"}]
    spec = spec_of(node)
    assert dict(spec.env) == {"A": "1", "P": "1", "SERVICE": "somewhere"}
    assert list(spec.command) == ["run", "1"]


async def test_what_devices_bring_is_in_the_container(node: LocalNode) -> None:
    device = ContainerDevice(container_path="/dev/x", host_path="/dev/null", permissions="r")
    node.devices.gifts = DeviceGrant(
        devices=[device],
        mounts=[ContainerMount(container_path="/in", host_path="/out")],
        annotations={"vendor": "x"},
        groups=[7],
    )
    await create(node)
    spec = spec_of(node)
    assert spec.devices == [device]
    assert "/out" in [mount.host_path for mount in spec.mounts]
    assert spec.annotations["vendor"] == "x"
    assert list(spec.security.groups) == [7]


async def test_a_volume_of_the_pod_beats_a_mount_of_a_device(node: LocalNode) -> None:
    node.devices.gifts = DeviceGrant(
        mounts=[ContainerMount(container_path="/data", host_path="/out")]
    )
    node.devices.resources.add(RESOURCE)
    await node.create(
        spec={"volumes": [{"name": "v", "emptyDir": {}}]},
        container={"volumeMounts": [{"name": "v", "mountPath": "/data"}], "resources": LIMITS},
    )
    mounts = {mount.container_path: mount.host_path for mount in spec_of(node).mounts}
    assert mounts["/data"] == "/volumes/v"


async def test_a_refusal_keeps_the_container_waiting_until_a_later_try(node: LocalNode) -> None:
    node.devices.failures = [ConfigFailure("wrong region")]
    await create(node)
    waiting = (await node.container())["state"]["waiting"]
    assert (waiting["reason"], waiting["message"]) == ("CreateContainerConfigError", "wrong region")
    assert node.events.messages("Failed") == ["Error: wrong region"]
    assert "Created" not in node.events.reasons()
    await node.later(60)
    assert "running" in (await node.container())["state"]
    assert len(node.devices.started) == 2


async def test_a_container_waits_for_the_image_of_its_volume(node: LocalNode) -> None:
    node.volumes.image_failures = [ImageFailure("ErrImagePull", "no registry")]
    await create(node)
    waiting = (await node.container())["state"]["waiting"]
    assert (waiting["reason"], waiting["message"]) == ("ErrImagePull", "no registry")
    assert node.events.messages("Failed") == ["Error: no registry"]
    await node.later(60)
    assert "running" in (await node.container())["state"]


async def test_a_device_is_left_alone_when_the_variables_do_not_work_out(node: LocalNode) -> None:
    node.environment.failures = [ConfigFailure('configmap "a" not found')]
    await create(node)
    assert node.devices.started == []
    waiting = (await node.container())["state"]["waiting"]
    assert waiting["message"] == 'configmap "a" not found'


async def test_a_restart_makes_the_device_ready_again(node: LocalNode) -> None:
    await create(node)
    node.runtime.end("ctr", 1)
    await node.settle()
    assert (await node.container())["restartCount"] == 1
    assert len(node.devices.started) == 2


async def test_a_pod_without_devices_to_be_had_is_not_taken(node: LocalNode) -> None:
    text = "Allocate failed due to no luck, which is unexpected"
    node.devices.refusals = [DeviceFailure("UnexpectedAdmissionError", text)]
    await create(node)
    status = await node.status()
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert status["message"] == f"Pod was rejected: {text}"
    assert node.events.messages("UnexpectedAdmissionError") == [text]
    assert await node.runtime.containers() == []


async def test_the_status_tells_how_the_devices_are(node: LocalNode) -> None:
    await create(node)
    told = (await node.container())["allocatedResourcesStatus"]
    assert told == [{"name": RESOURCE, "resources": [{"resourceID": "d-0", "health": "Healthy"}]}]
    node.devices.sick = True
    for uid in node.devices.holders:
        node.pods.wake(uid)
    await node.later(1)
    told = (await node.container())["allocatedResourcesStatus"]
    assert told[0]["resources"][0]["health"] == "Unhealthy"


async def test_devices_are_given_back_at_the_end(node: LocalNode) -> None:
    node.devices.resources.add(RESOURCE)
    await node.create(spec={"restartPolicy": "Never"}, container={"resources": LIMITS})
    assert len(node.devices.holders) == 1
    node.runtime.end("ctr", 0)
    await node.settle()
    assert (await node.status())["phase"] == "Succeeded"
    assert node.devices.holders == set()
    assert (await node.container())["allocatedResourcesStatus"][0]["name"] == RESOURCE


async def test_devices_of_a_pod_that_vanished_while_nobody_looked_are_given_back(
    node: LocalNode,
) -> None:
    node.devices.holders.add("long-gone")
    await node.kill()
    await node.start()
    assert node.devices.holders == set()
