"""Registration of CSI drivers, with a real driver behind a socket."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.deviceplugin.messages import PluginInfo
from kedge.machinery.clock import SystemClock
from kedge.node.devices.watcher import PluginRefused
from kedge.node.storage.csi_registry import CsiRegistry
from kedge.testing.csi_driver import DRIVER_NAME, ScriptedCsiDriver


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[ScriptedCsiDriver]:
    made = ScriptedCsiDriver(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_a_driver_registers_with_its_topology(program: ScriptedCsiDriver) -> None:
    program.segments = {"example.com/rack": "r1"}
    registry = CsiRegistry(SystemClock())
    announced: list[object] = []

    async def announce(labels: object) -> None:
        announced.append((labels, [each.document() for each in registry.nodes()]))

    registry.announce = announce
    info = PluginInfo(type="CSIPlugin", name=DRIVER_NAME, supported_versions=["1.0.0"])
    withdraw = await registry.adopt(info, program.socket)
    entry = {
        "name": DRIVER_NAME,
        "nodeID": "node-of-driver",
        "topologyKeys": ["example.com/rack"],
        "allocatable": {"count": 7},
    }
    assert announced == [({"example.com/rack": "r1"}, [entry])]
    with pytest.raises(PluginRefused, match="already"):
        await registry.adopt(info, program.socket)
    assert not await registry.refresh(DRIVER_NAME)
    program.most_volumes = 9
    assert await registry.refresh(DRIVER_NAME)
    assert registry.nodes()[0].document() == {**entry, "allocatable": {"count": 9}}
    await withdraw()
    assert not await registry.refresh(DRIVER_NAME)
    assert (registry.find(DRIVER_NAME), registry.nodes()) == (None, [])


@pytest.mark.parametrize(
    ("name", "version", "endpoint"),
    [
        ("disk.example.com", "2.0.0", "/x"),
        ("Not A Name", "1.0.0", "/x"),
        ("disk.example.com", "1.0.0", "relative"),
    ],
)
async def test_an_invalid_registration_is_refused(name: str, version: str, endpoint: str) -> None:
    info = PluginInfo(type="CSIPlugin", name=name, supported_versions=[version])
    with pytest.raises(PluginRefused, match="plugin validation failed"):
        await CsiRegistry(SystemClock()).adopt(info, Path(endpoint))
