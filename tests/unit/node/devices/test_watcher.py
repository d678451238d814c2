"""Plugins that register by their sockets."""

from pathlib import Path

import pytest

from kedge.deviceplugin.messages import PluginInfo
from kedge.node.devices.watcher import PluginRefused, PluginWatcher, Withdraw
from kedge.testing.clock import FakeClock


class BrokenHandler:
    """Fulfils PluginHandler; fails with an error that is not expected."""

    async def adopt(self, info: PluginInfo, endpoint: Path) -> Withdraw:
        raise ValueError("embedded null byte")


async def test_an_unexpected_error_refuses_the_plugin(tmp_path: Path) -> None:
    watcher = PluginWatcher(tmp_path, {"DRAPlugin": BrokenHandler()}, FakeClock(), Path)
    info = PluginInfo(type="DRAPlugin", name="d.example", endpoint="/x")
    with pytest.raises(PluginRefused, match="failed with err: embedded null byte"):
        await watcher._adopted(info, tmp_path / "reg.sock")
