"""Which driver a volume gets."""

from pathlib import Path

import pytest

from kedge.node.storage.driver_catalog import NodeDrivers
from kedge.node.storage.local_driver import LocalDriver
from kedge.node.storage.local_store import LocalVolumeStore
from kedge.node.storage.volume_driver import DriverError, DriverVolume


async def no_mark(volume: DriverVolume) -> None:
    pytest.fail("no volume is mounted")


def test_the_own_driver_is_made_once_and_when_it_is_needed(tmp_path: Path) -> None:
    made: list[LocalDriver] = []

    def make() -> LocalDriver:
        store = LocalVolumeStore(tmp_path)
        made.append(LocalDriver(store, may_mount=False, shortfall=lambda *_: None, mark=no_mark))
        return made[-1]

    drivers = NodeDrivers({"own": make}, None)
    assert made == []
    assert drivers.find("own") is drivers.find("own")
    assert len(made) == 1


def test_an_absent_driver_is_named() -> None:
    drivers = NodeDrivers({"own": lambda: pytest.fail("not needed")}, None)
    with pytest.raises(DriverError, match=r"driver name x\.example\.com not found in the list"):
        drivers.find("x.example.com")
