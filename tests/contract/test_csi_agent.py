"""The agent with a CSI driver that misbehaves: nothing is mounted twice or forgotten."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.node.storage.test_pod_storage import (
    CLAIMS,
    VOLUMES,
    StorageBox,
    bind,
    claim_pod,
)

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.security import PodSecurityContext
from kedge.deviceplugin import wire
from kedge.deviceplugin.messages import PluginInfo
from kedge.machinery.clock import SystemClock
from kedge.node.devices.watcher import PluginRefused, Withdraw
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.storage import csi_driver
from kedge.node.storage import csi_messages as m
from kedge.node.storage.csi_registry import CsiRegistry
from kedge.node.storage.republisher import PERIOD_SECONDS, Republisher
from kedge.testing.csi_driver import DRIVER_NAME, ScriptedCsiDriver
from kedge.testing.local_server import LocalServer

DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
SOURCE = {"csi": {"driver": DRIVER_NAME, "volumeHandle": "h"}}
INFO = PluginInfo(type="CSIPlugin", name=DRIVER_NAME, supported_versions=["1.0.0"])
MOUNT_CALLS = ("NodeStageVolume", "NodePublishVolume")
UNMOUNT_CALLS = ("NodeUnpublishVolume", "NodeUnstageVolume")
WAIT_SECONDS = 60
MANY_SEGMENTS = m.CsiTopology(segments={f"k{each}": "v" for each in range(17)})


class CsiBox(StorageBox):
    """The storage of a node, and a driver in a socket of its own."""

    def __init__(self, server: LocalServer, directory: Path, program: ScriptedCsiDriver) -> None:
        self.program = program
        self._withdraw: Withdraw | None = None
        super().__init__(server, directory)

    def registry(self) -> CsiRegistry:
        self.registered = CsiRegistry(SystemClock())
        return self.registered

    async def register(self) -> None:
        """Adopt the driver; an earlier agent loses its connection."""
        await self.close()
        self.registered.announce = None
        self._withdraw = await self.registered.adopt(INFO, self.program.socket)

    async def close(self) -> None:
        if self._withdraw is not None:
            await self._withdraw()
            self._withdraw = None

    async def replaced(self) -> None:
        """Another agent takes over, which knows only what is on disk."""
        self.restart()
        await self.register()

    async def killed_in(self, call: str, work: Callable[[], Awaitable[None]]) -> None:
        """Begin some work, and kill the agent while the driver is in this call."""
        gate = self.program.gates[call] = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            doing = tasks.create_task(outcome(work))
            await self.called(call)
            doing.cancel()
        gate.set()
        del self.program.gates[call]
        await self.replaced()

    async def called(self, call: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while call not in self.program.calls:
                await SystemClock().sleep(0.005)

    async def succeeds(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat some work, as pods' workers do, until it succeeds."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                try:
                    await work()
                    return
                except VolumeFailure:
                    await SystemClock().sleep(0.02)

    def check_mounted(self, *uids: str) -> None:
        kubelet = self.directory / "kubelet"
        targets = {f"{kubelet}/pods/{each}/volumes/kubernetes.io~csi/pv/mount" for each in uids}
        assert set(self.program.published) == targets
        assert set(self.program.published.values()) == ({"h"} if uids else set())
        assert set(self.program.staged) == ({"h"} if uids else set())
        assert {each.uid for each in self.pods.records} == set(uids)
        assert [each for each in kubelet.rglob("mount") if str(each) not in targets] == []


async def outcome(work: Callable[[], Awaitable[None]]) -> str:
    """Return the error of some work; empty if it succeeds."""
    try:
        await work()
    except VolumeFailure as error:
        return str(error)
    return ""


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[CsiBox]:
    program = ScriptedCsiDriver(tmp_path / "driver")
    await program.start()
    async with LocalServer.running() as server:
        made = CsiBox(server, tmp_path, program)
        modes = ["Ephemeral", "Persistent"]
        spec = {"attachRequired": False, "volumeLifecycleModes": modes}
        await server.post(DRIVERS, {"metadata": {"name": DRIVER_NAME}, "spec": spec})
        await bind(made, SOURCE, modes="ReadWriteMany")
        await made.register()
        yield made
        await made.close()
    await program.stop()


def grouped(group: int) -> Pod:
    pod = claim_pod()
    security = PodSecurityContext(fsGroup=group)
    return replace(pod, spec=replace(pod.spec, securityContext=security))


@pytest.mark.parametrize("call", MOUNT_CALLS)
async def test_an_agent_that_is_killed_while_it_mounts(box: CsiBox, call: str) -> None:
    await box.killed_in(call, lambda: box.mount(claim_pod()))
    await box.succeeds(lambda: box.mount(claim_pod()))
    box.check_mounted("u1")
    await box.pods.unmount("u1")
    box.check_mounted()


@pytest.mark.parametrize("call", MOUNT_CALLS)
async def test_a_pod_that_goes_while_its_agent_is_down(box: CsiBox, call: str) -> None:
    await box.killed_in(call, lambda: box.mount(claim_pod()))
    await box.succeeds(lambda: box.pods.unmount("u1"))
    box.check_mounted()


@pytest.mark.parametrize("call", UNMOUNT_CALLS)
async def test_an_agent_that_is_killed_while_it_unmounts(box: CsiBox, call: str) -> None:
    await box.mount(claim_pod())
    await box.killed_in(call, lambda: box.pods.unmount("u1"))
    await box.succeeds(lambda: box.pods.unmount("u1"))
    box.check_mounted()


@pytest.mark.parametrize("call", MOUNT_CALLS)
async def test_a_driver_that_dies_in_a_call_and_forgets_everything(box: CsiBox, call: str) -> None:
    gate = box.program.gates[call] = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        doing = tasks.create_task(outcome(lambda: box.mount(claim_pod())))
        await box.called(call)
        await box.program.stop()
    assert "rpc error" in doing.result()
    gate.set()
    box.program.staged.clear()
    await box.program.start()
    await box.succeeds(lambda: box.mount(claim_pod()))
    box.check_mounted("u1")


@pytest.mark.parametrize("call", [*MOUNT_CALLS, *UNMOUNT_CALLS])
async def test_answers_that_are_lost_are_repaired(box: CsiBox, call: str) -> None:
    box.program.lost_answers = {call}
    await box.succeeds(lambda: box.mount(claim_pod()))
    box.check_mounted("u1")
    await box.succeeds(lambda: box.pods.unmount("u1"))
    box.check_mounted()
    assert box.program.lost_answers == set()


async def test_two_pods_share_what_is_staged_until_the_last_one_goes(box: CsiBox) -> None:
    await box.mount(claim_pod("u1"))
    await box.mount(claim_pod("u2"))
    box.check_mounted("u1", "u2")
    await box.pods.unmount("u1")
    box.check_mounted("u2")
    assert "NodeUnstageVolume" not in box.program.calls
    await box.pods.unmount("u2")
    box.check_mounted()


async def test_a_driver_that_hangs_delays_no_other_volume(box: CsiBox) -> None:
    gate = box.program.gates["NodeStageVolume"] = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        hanging = tasks.create_task(box.mount(claim_pod()))
        await box.called("NodeStageVolume")
        inline = {"name": "v", "csi": {"driver": DRIVER_NAME}}
        await box.mount(_with_volume(inline))
        assert "NodePublishVolume" in box.program.calls
        assert not hanging.done()
        gate.set()


def _with_volume(volume: dict[str, Any]) -> Pod:
    container = {"name": "c", "image": "i"}
    return RESOURCE.from_document(
        {
            "metadata": {"name": "other", "namespace": "default", "uid": "u9"},
            "spec": {"containers": [container], "volumes": [volume]},
        }
    )


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([b"\xff\xff\xff"], id="no message"),
        pytest.param([b"\x0a\x05abc"], id="cut off"),
        pytest.param([b"\x0a" + b"\x80" * 9 + b"\x01"], id="endless length"),
        pytest.param([bytes(5 * 2**20)], id="larger than allowed"),
        pytest.param([], id="no answer"),
    ],
)
@pytest.mark.parametrize("call", MOUNT_CALLS)
async def test_wrong_answers_are_errors_and_the_next_right_one_counts(
    box: CsiBox, call: str, answers: list[bytes]
) -> None:
    box.program.raw_answers[call] = answers
    # An empty message has no fields: some wrong answers to these calls are right enough.
    with contextlib.suppress(VolumeFailure):
        await box.mount(claim_pod())
    box.program.raw_answers.clear()
    await box.succeeds(lambda: box.mount(claim_pod()))
    box.check_mounted("u1")
    await box.succeeds(lambda: box.pods.unmount("u1"))
    box.check_mounted()


async def test_a_driver_that_answers_twice_has_not_answered(box: CsiBox) -> None:
    box.program.raw_answers["NodeStageVolume"] = [b"", b""]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csi_driver, "CALL_SECONDS", 0.5)
        assert "rpc error" in await outcome(lambda: box.mount(claim_pod()))
    box.program.raw_answers.clear()
    await box.mount(claim_pod())
    box.check_mounted("u1")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x0a\x81\x02" + b"n" * 257,
        bytes(5 * 2**20),
        b"\xff",
        wire.encode(m.NodeInfoResponse(node_id="n", accessible_topology=MANY_SEGMENTS)),
    ],
    ids=["no node id", "long node id", "huge", "no message", "many segments"],
)
async def test_a_driver_with_an_invalid_node_is_not_registered(box: CsiBox, answer: bytes) -> None:
    await box.close()
    box.program.raw_answers["NodeGetInfo"] = [answer]
    with pytest.raises(PluginRefused):
        await box.registered.adopt(INFO, box.program.socket)
    assert (box.registered.find(DRIVER_NAME), box.registered.nodes()) == (None, [])


async def test_a_driver_that_can_gets_the_group_of_the_pod(box: CsiBox) -> None:
    box.program.capabilities = (m.STAGE_UNSTAGE, m.VOLUME_MOUNT_GROUP)
    await box.replaced()
    await box.mount(grouped(4711))
    asked = [each.volume_capability.mount.volume_mount_group for each in _mounts(box)]
    assert asked == ["4711", "4711"]


async def test_other_drivers_do_not_get_it(box: CsiBox) -> None:
    await box.mount(grouped(4711))
    assert [each.volume_capability.mount.volume_mount_group for each in _mounts(box)] == ["", ""]


def _mounts(box: CsiBox) -> list[Any]:
    return [each for each in box.program.requests if hasattr(each, "volume_capability")]


async def test_volumes_are_published_again_for_drivers_that_want_it(box: CsiBox) -> None:
    await box.server.merge(f"{DRIVERS}/{DRIVER_NAME}", {"spec": {"requiresRepublish": True}})
    pod = claim_pod()
    await box.mount(pod)
    clock = box.server.clock
    pods = {"u1": pod}
    box.server.start(Republisher(box.pods, pods.get, box.events, clock).run())
    await box.server.settle()
    box.program.calls.clear()
    box.program.errors["NodePublishVolume"] = "INTERNAL"
    await clock.advance(PERIOD_SECONDS)
    await box.until(lambda: "FailedMount" in box.events.reasons())
    box.check_mounted("u1")
    box.program.errors.clear()
    before = len(box.program.calls)
    await clock.advance(PERIOD_SECONDS)
    await box.until(lambda: len(box.program.calls) > before)
    assert set(box.program.calls) == {"NodePublishVolume"}
    box.check_mounted("u1")


async def grow(box: CsiBox) -> None:
    """As a resizer does it."""
    await box.server.merge(f"{VOLUMES}/pv", {"spec": {"capacity": {"storage": "5Mi"}}})
    state = {"allocatedResourceStatuses": {"storage": "NodeResizePending"}}
    await box.server.merge(f"{CLAIMS}/c/status", {"status": state})


async def in_time(box: CsiBox, condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition while the agent's time passes."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():
            await box.server.clock.advance(1)
            await box.server.settle()
            await asyncio.to_thread(lambda: None)


async def has_grown(box: CsiBox) -> bool:
    return "FileSystemResizeSuccessful" in box.events.reasons()


async def test_an_expansion_that_the_driver_refuses_is_left_to_the_resizer(box: CsiBox) -> None:
    async def is_infeasible() -> bool:
        status = (await box.server.get(f"{CLAIMS}/c"))["status"]
        return bool(status["allocatedResourceStatuses"]["storage"] == "NodeResizeInfeasible")

    box.program.errors["NodeExpandVolume"] = "OUT_OF_RANGE"
    box.server.start(box.node.run())
    await box.mount(claim_pod())
    await grow(box)
    await in_time(box, is_infeasible)
    status = (await box.server.get(f"{CLAIMS}/c"))["status"]
    assert [each["type"] for each in status["conditions"]] == ["NodeResizeError"]
    del box.program.errors["NodeExpandVolume"]
    assert not await has_grown(box)
    await grow(box)
    await in_time(box, lambda: has_grown(box))


async def test_the_secrets_of_an_expansion_are_sent(box: CsiBox) -> None:
    await box.server.post(
        "/api/v1/namespaces/default/secrets",
        {"metadata": {"name": "s"}, "data": {"key": "dmFsdWU="}},
    )
    await box.server.call("DELETE", f"{VOLUMES}/pv")
    await box.server.call("DELETE", f"{CLAIMS}/c")
    secret = {"name": "s", "namespace": "default"}
    await bind(box, {"csi": {**SOURCE["csi"], "nodeExpandSecretRef": secret}})
    box.server.start(box.node.run())
    await box.mount(claim_pod())
    await grow(box)
    await in_time(box, lambda: has_grown(box))
    [asked] = [each for each in box.program.requests if isinstance(each, m.ExpandVolumeRequest)]
    assert asked.secrets == {"key": "value"}
    assert asked.capacity_range is not None
    assert asked.capacity_range.required_bytes == 5 << 20
