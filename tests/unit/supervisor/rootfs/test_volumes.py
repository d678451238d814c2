import os
from pathlib import Path

import pytest
from tests.unit.supervisor.conftest import Apart

from kedge.supervisor.kernel import libc
from kedge.supervisor.rootfs import volumes
from kedge.supervisor.spec import BindMount


def bind(
    source: Path, target: str = "/data", *, part: str = "", read_only: bool = False
) -> BindMount:
    return BindMount(
        source=str(source),
        part=part,
        target=target,
        read_only=read_only,
        recursive=False,
        propagation="None",
    )


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "volume" / "inner").mkdir(parents=True)
    (tmp_path / "volume" / "inner" / "file").write_text("content")
    (tmp_path / "volume" / "link").symlink_to("/etc")
    (tmp_path / "root").mkdir()
    return tmp_path / "volume"


def test_a_part_of_a_volume_is_mounted(apart: Apart, volume: Path, tmp_path: Path) -> None:
    def test() -> None:
        root = os.open(tmp_path / "root", os.O_PATH)
        one = bind(volume, part="inner", read_only=True)
        volumes.attach(root, one, volumes.open_tree(one, -1, no_devices=True), root_proc(tmp_path))
        assert (tmp_path / "root/data/file").read_text() == "content"
        with pytest.raises(OSError, match="Read-only"):
            (tmp_path / "root/data/new").touch()

    apart(test)


def root_proc(tmp_path: Path) -> int:
    (tmp_path / "root" / "proc").mkdir(exist_ok=True)
    return os.open(tmp_path / "root" / "proc", os.O_PATH)


def test_a_part_cannot_lead_out_of_its_volume(apart: Apart, volume: Path) -> None:
    def test() -> None:
        for part in ("link", "../root", "inner/../.."):
            with pytest.raises(OSError, match="failed to mount"):
                volumes.open_tree(bind(volume, part=part), -1, no_devices=False)

    apart(test)


@pytest.mark.parametrize(
    ("target", "is_refused"),
    [("/proc", True), ("/proc/sys/kernel", True), ("/proc/meminfo", False), ("/process", False)],
)
def test_only_some_files_of_proc_can_be_replaced(
    apart: Apart, volume: Path, tmp_path: Path, target: str, is_refused: bool
) -> None:
    def test() -> None:
        root, proc = os.open(tmp_path / "root", os.O_PATH), root_proc(tmp_path)
        (tmp_path / "root/proc/sys/kernel").mkdir(parents=True)
        source = volume / "inner" / "file" if target.endswith("info") else volume
        one = bind(source, target)
        tree = volumes.open_tree(one, -1, no_devices=False)
        if is_refused:
            with pytest.raises(volumes.UnsafeMount, match="it is inside /proc"):
                volumes.attach(root, one, tree, proc)
        else:
            volumes.attach(root, one, tree, proc)

    apart(test)


def test_mounts_of_a_container_reach_only_shared_mounts(apart: Apart, volume: Path) -> None:
    def test() -> None:
        one = bind(volume)
        one["propagation"] = "Bidirectional"
        with pytest.raises(OSError, match="it is not a shared mount"):
            volumes.open_tree(one, -1, no_devices=False)
        libc.mount("tmpfs", str(volume), "tmpfs")
        libc.mount("", str(volume), flags=libc.MS_SHARED)
        os.close(volumes.open_tree(one, -1, no_devices=False))

    apart(test)
