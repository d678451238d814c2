"""Plugins register, are heard, and go, over real sockets."""

import asyncio
import socket
import subprocess
import sys
from typing import Any

import pytest

from kedge.deviceplugin import UNHEALTHY, Device, library, methods
from kedge.deviceplugin import messages as m
from kedge.node.devices.ledger import DeviceAmounts
from kedge.node.devices.registry import check
from kedge.node.devices.watcher import PluginRefused
from kedge.testing.device_plugin import RESOURCE_NAME as R
from kedge.testing.device_plugin import DeviceStage, ScriptedPlugin, until


def request(**fields: Any) -> m.RegisterRequest:
    known = {"version": "v1beta1", "endpoint": "x.sock", "resource_name": R}
    return m.RegisterRequest(**(known | fields))


async def register(stage: DeviceStage, asked: m.RegisterRequest) -> str:
    """What a plugin hears that registers: nothing, or a refusal."""
    grpc = library.load()
    where = f"unix:{stage.directory / 'kubelet.sock'}"
    async with grpc.aio.insecure_channel(
        where, options=[("grpc.default_authority", "localhost")]
    ) as channel:
        try:
            await methods.caller(channel, methods.REGISTER)(asked, timeout=10)
        except grpc.aio.AioRpcError as error:
            return library.refusal(error)
    return ""


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"version": "v1alpha"},
            'requested API version "v1alpha" is not supported by kubelet. '
            'Supported version is ["v1beta1"]',
        ),
        ({"resource_name": "cpu"}, 'the ResourceName "cpu" is invalid'),
        ({"resource_name": "kubernetes.io/d"}, 'the ResourceName "kubernetes.io/d" is invalid'),
        ({"resource_name": "requests.a/d"}, 'the ResourceName "requests.a/d" is invalid'),
        ({"endpoint": "../x.sock"}, 'the endpoint "../x.sock" is not the name of a socket'),
        ({"endpoint": "a/x.sock"}, 'the endpoint "a/x.sock" is not the name of a socket'),
        ({"endpoint": "kubelet.sock"}, 'the endpoint "kubelet.sock" is not the name of a socket'),
    ],
)
def test_who_is_not_taken(fields: dict[str, str], text: str) -> None:
    with pytest.raises(PluginRefused) as caught:
        check(request(**fields))
    assert str(caught.value).startswith(text)


async def test_a_refusal_reaches_the_plugin(stage: DeviceStage) -> None:
    await stage.begin()
    said = await register(stage, request(resource_name="cpu"))
    assert said == 'rpc error: code = Unknown desc = the ResourceName "cpu" is invalid'


async def test_a_plugin_registers_and_its_devices_are_counted(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    assert devices.amounts() == {R: DeviceAmounts(2, 2)}
    plugin.offer(Device("d-0"), Device("d-1", UNHEALTHY))
    await until(lambda: devices.amounts() == {R: DeviceAmounts(2, 1)})
    plugin.offer(Device("d-0", "Strange"))
    await until(lambda: devices.amounts() == {R: DeviceAmounts(1, 0)})
    assert stage.node_told == 3


async def test_a_thousand_devices_are_counted(stage: DeviceStage) -> None:
    devices = await stage.begin()
    await stage.plug(ScriptedPlugin(ids=[f"device-{i}" for i in range(1000)]))
    assert devices.amounts() == {R: DeviceAmounts(1000, 1000)}


async def test_what_the_plugin_answers_counts_not_what_it_registers_with(
    stage: DeviceStage,
) -> None:
    devices = await stage.begin()
    plugin = ScriptedPlugin(options=m.DevicePluginOptions(pre_start_required=True))
    await stage.plug(plugin)
    assert await register(stage, request(endpoint=plugin.socket, options=None)) == ""
    assert devices._ledger.offers[R].options.pre_start_required


async def test_a_dead_plugin_keeps_its_capacity_for_five_minutes(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await stage.unplug(plugin)
    await until(lambda: devices.amounts() == {R: DeviceAmounts(2, 0)})
    await stage.clock.advance(299)
    assert devices.amounts() == {R: DeviceAmounts(2, 0)}
    await stage.clock.advance(2)
    assert devices.amounts() == {R: DeviceAmounts(0, 0)}
    await stage.plug(plugin)
    assert devices.amounts() == {R: DeviceAmounts(2, 2)}


async def test_a_plugin_that_is_back_in_time_loses_nothing(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = await stage.plug(ScriptedPlugin())
    await stage.unplug(plugin)
    await until(lambda: devices.amounts() == {R: DeviceAmounts(2, 0)})
    await stage.plug(ScriptedPlugin(ids=["d-0"]), wait=False)
    await until(lambda: devices.amounts() == {R: DeviceAmounts(1, 1)})
    await stage.clock.advance(400)
    assert devices.amounts() == {R: DeviceAmounts(1, 1)}


class Elsewhere(ScriptedPlugin):
    """A second plugin for a resource, with a socket of its own."""

    socket = "elsewhere.sock"


async def test_the_newest_plugin_wins_and_the_end_of_the_old_one_harms_nobody(
    stage: DeviceStage,
) -> None:
    devices = await stage.begin()
    old = await stage.plug(ScriptedPlugin())
    await stage.plug(Elsewhere(ids=["x", "y", "z"]), wait=False)
    await until(lambda: devices.amounts() == {R: DeviceAmounts(3, 3)})
    old.offer(Device("late"))
    await stage.unplug(old)
    await stage.clock.advance(400)
    assert devices.amounts() == {R: DeviceAmounts(3, 3)}


async def test_one_process_may_offer_several_resources(stage: DeviceStage) -> None:
    devices = await stage.begin()
    await stage.plug(ScriptedPlugin("example.com/a"))
    await stage.plug(ScriptedPlugin("example.com/b", ["b"]))
    assert devices.amounts() == {
        "example.com/a": DeviceAmounts(2, 2),
        "example.com/b": DeviceAmounts(1, 1),
    }


async def test_a_plugin_may_listen_only_after_it_was_answered(stage: DeviceStage) -> None:
    devices = await stage.begin()
    plugin = ScriptedPlugin()
    registering = stage._tasks["late"] = _task(register(stage, request(endpoint=plugin.socket)))
    await stage.passing(registering.done)
    assert registering.result() == ""
    server = await plugin._listen(stage.directory / plugin.socket)
    await stage.passing(devices.amounts)
    await until(lambda: devices.amounts() == {R: DeviceAmounts(2, 2)})
    await server.stop(0)


async def test_a_socket_behind_which_nobody_answers_is_an_error(stage: DeviceStage) -> None:
    await stage.begin()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(stage.directory / "x.sock"))
        registering = stage._tasks["deaf"] = _task(register(stage, request()))
        await stage.passing(registering.done, pause=0.01)
        assert registering.result().startswith(
            "rpc error: code = Unknown desc = failed to dial device plugin: "
        )


def _task(work: Any) -> Any:
    return asyncio.get_running_loop().create_task(work)


async def test_an_agent_that_begins_removes_sockets_and_nothing_else(stage: DeviceStage) -> None:
    stage.directory.mkdir()
    (stage.directory / "notes").write_text("kept")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stage.directory / "old.sock"))
    await stage.begin()
    names = {path.name for path in stage.directory.iterdir()}
    assert names == {"notes", "kubelet.sock"}


async def test_plugins_come_back_after_the_agent_did(stage: DeviceStage) -> None:
    """The base class notices both: another socket of the kubelet's, and its own being gone."""
    await stage.begin()
    plugin = await stage.plug(ScriptedPlugin(clock=stage.clock))
    await stage.end()
    devices = await stage.begin()
    assert devices.amounts() == {R: DeviceAmounts(0, 0)}
    await stage.passing(lambda: devices.amounts()[R].capacity)
    assert devices.amounts() == {R: DeviceAmounts(2, 2)}
    (stage.directory / plugin.socket).unlink()
    await stage.passing((stage.directory / plugin.socket).exists)


class Watched(ScriptedPlugin):
    """A plugin that does not register but is found."""

    def __init__(self, **info: Any) -> None:
        super().__init__()
        known = {"type": "DevicePlugin", "name": R, "supported_versions": ["v1beta1"]}
        self.info = m.PluginInfo(**(known | info))
        self.heard: list[m.RegistrationStatus] = []

    def _handlers(self) -> dict[methods.Method[Any, Any], methods.Handler]:
        return super()._handlers() | {methods.GET_INFO: self._info, methods.NOTIFY: self._notify}

    async def _info(self, request: m.Empty, context: Any) -> m.PluginInfo:
        return self.info

    async def _notify(self, request: m.RegistrationStatus, context: Any) -> m.Empty:
        self.heard.append(request)
        return m.Empty()


async def found(stage: DeviceStage, plugin: Watched) -> m.RegistrationStatus:
    directory = stage.devices.places.watched / "vendor"
    directory.mkdir(parents=True, exist_ok=True)
    server = await plugin._listen(directory / "reg.sock")
    await stage.passing(lambda: plugin.heard)
    if plugin.heard[0].plugin_registered:
        await until(lambda: stage.devices.amounts() == {R: DeviceAmounts(2, 2)})
    await server.stop(0)
    return plugin.heard[0]


async def test_a_socket_in_the_watched_directory_is_a_plugin(stage: DeviceStage) -> None:
    await stage.begin()
    assert stage.devices.places.watched == stage.directory.parent / "plugins_registry"
    assert (await found(stage, Watched())).plugin_registered


@pytest.mark.parametrize(
    ("info", "error"),
    [
        ({"type": "CSIPlugin"}, "no handler registered for plugin type: CSIPlugin"),
        ({"supported_versions": ["v2"]}, "manager unsupported version: [v2]"),
        ({"name": "cpu"}, 'the ResourceName "cpu" is invalid'),
    ],
)
async def test_other_sockets_there_are_told_why_not(
    stage: DeviceStage, info: dict[str, Any], error: str
) -> None:
    await stage.begin()
    told = await found(stage, Watched(**info))
    assert not told.plugin_registered
    assert told.error.startswith(f"RegisterPlugin error -- {error}")


def test_no_library_is_loaded_before_somebody_knocks() -> None:
    code = "import sys, kedge.node.agent, kedge.deviceplugin; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
