"""Connections to programs at Unix sockets."""

import asyncio
from pathlib import Path

import pytest

from kedge.deviceplugin import messages as m
from kedge.deviceplugin import methods
from kedge.node.devices.plugin_channel import DIAL_SECONDS, PluginChannel, PluginError
from kedge.testing.clock import FakeClock
from kedge.testing.device_plugin import ScriptedPlugin


async def test_a_socket_without_a_listener_is_given_up(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = PluginChannel("x", tmp_path / "none.sock", clock)
    dial = asyncio.ensure_future(channel.dial())
    await clock.advance(DIAL_SECONDS)
    with pytest.raises(PluginError, match="context deadline exceeded"):
        await dial
    assert channel.stopped


async def test_a_call_has_a_result_or_gos_words(tmp_path: Path) -> None:
    plugin = ScriptedPlugin()
    server = await plugin._listen(tmp_path / "p.sock")
    channel = PluginChannel("x", tmp_path / "p.sock", FakeClock())
    await channel.dial()
    assert await channel.call(methods.OPTIONS, m.Empty(), 5) == m.DevicePluginOptions()
    with pytest.raises(PluginError, match="rpc error: code = Unimplemented desc = "):
        await channel.info()
    await channel.close()
    with pytest.raises(PluginError, match="endpoint of x has been stopped"):
        await channel.call(methods.OPTIONS, m.Empty())
    await server.stop(0)
