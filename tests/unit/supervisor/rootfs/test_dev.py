import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.unit.supervisor.conftest import Apart

from kedge.supervisor.kernel import devices
from kedge.supervisor.rootfs import dev
from kedge.supervisor.rootfs.options import RootfsOptions
from kedge.supervisor.spec import DeviceNode


def node(target: str, source: str = "/dev/null") -> DeviceNode:
    return DeviceNode(source=source, target=target, permissions="rw")


@pytest.mark.parametrize(
    ("target", "expected"),
    [("/dev/gpu", True), ("/dev/../etc/x", False), ("/device", False), ("/opt/gpu", False)],
)
def test_devices_below_dev_are_nodes(target: str, expected: bool) -> None:
    assert dev.is_below_dev(node(target)) is expected


def test_a_container_has_the_standard_devices_and_its_own(apart: Apart, tmp_path: Path) -> None:
    spec: Any = {"privileged": False, "devices": [node("/dev/a/b", "/dev/zero")]}

    def test() -> None:
        for any_device in (True, False):
            root = tmp_path / str(any_device)
            root.mkdir()
            options = RootfsOptions(
                home="/none",
                mount_point=str(root),
                rootless=False,
                cgroup_views=[],
                shm=-1,
                any_device=any_device,
                proc=(-1, ""),
            )
            top = os.open(root, os.O_PATH)
            dev.mount(top, spec, options, dev.open_shared_memory(options))
            for name, major, minor in devices.NODES:
                status = (root / "dev" / name).stat()
                assert stat.S_ISCHR(status.st_mode)
                assert status.st_rdev == os.makedev(major, minor)
            assert os.readlink(root / "dev/stdout") == "/proc/self/fd/1"
            assert (root / "dev/a/b").exists() is any_device
            assert (root / "dev/null").read_bytes() == b""

    apart(test)


def test_a_terminal_is_of_the_container_and_is_its_console(apart: Apart, tmp_path: Path) -> None:
    spec: Any = {"privileged": False, "devices": []}

    def test() -> None:
        options = RootfsOptions(
            home="/none",
            mount_point=str(tmp_path),
            rootless=False,
            cgroup_views=[],
            shm=-1,
            any_device=True,
            proc=(-1, ""),
        )
        root = os.open(tmp_path, os.O_PATH)
        dev.mount(root, spec, options, dev.open_shared_memory(options))
        assert os.isatty(dev.open_terminal(root))
        assert (tmp_path / "dev/console").stat().st_rdev == (tmp_path / "dev/pts/0").stat().st_rdev

    apart(test)
