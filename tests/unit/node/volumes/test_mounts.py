"""What is mounted where, and directories that go without what was mounted in them."""

import os
import socket
from pathlib import Path

import pytest

from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc


def bind(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    libc.mount(str(source), str(target), flags=libc.MS_BIND)


def test_a_mount_is_seen_whatever_its_name(mountable: Path) -> None:
    place = mountable / "with space\tand\\ newline\n"
    place.mkdir()
    assert not mounts.mounted(place)
    mounts.memory(place, "mode=0700")
    assert mounts.mounted(place)
    assert mounts.below(mountable) == [str(place)]


def test_mounts_are_seen_through_a_link(mountable: Path) -> None:
    (mountable / "real").mkdir()
    (mountable / "link").symlink_to("real")
    place = mountable / "real" / "v"
    place.mkdir()
    mounts.memory(place)
    assert mounts.mounted(mountable / "link" / "v")
    assert mounts.below(mountable / "link") == [str(place)]


def test_a_neighbour_with_a_longer_name_is_not_below(mountable: Path) -> None:
    (mountable / "pod-2").mkdir()
    mounts.memory(mountable / "pod-2")
    assert mounts.below(mountable / "pod") == []


def test_take_down_leaves_no_mount_and_all_that_was_mounted(mountable: Path) -> None:
    kept, volume = mountable / "kept", mountable / "pod" / "v"
    kept.mkdir()
    (kept / "precious").write_text("x")
    bind(kept, volume)
    bind(kept, volume)
    bind(kept, mountable / "pod" / "memory")
    mounts.memory(mountable / "pod" / "memory")
    (mountable / "pod" / "memory" / "file").touch()
    mounts.take_down(mountable / "pod")
    assert mounts.below(mountable) == []
    assert not (mountable / "pod").exists()
    assert (kept / "precious").read_text() == "x"


def test_take_down_through_a_link_keeps_what_was_mounted(mountable: Path) -> None:
    kept = mountable / "kept"
    kept.mkdir()
    (kept / "precious").touch()
    (mountable / "real").mkdir()
    (mountable / "link").symlink_to("real")
    bind(kept, mountable / "real" / "pod" / "v")
    mounts.take_down(mountable / "link" / "pod")
    assert os.listdir(mountable / "real") == []
    assert (kept / "precious").exists()


@pytest.mark.parametrize("where", ["v", "v/deep/down"])
def test_even_a_mount_that_was_overlooked_is_not_emptied(
    where: str, mountable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, top = mountable / "kept", mountable / "pod"
    kept.mkdir(mode=0o755)
    (kept / "precious").touch()
    bind(kept, top / where)
    with monkeypatch.context() as patch:
        patch.setattr(mounts, "places", list)
        with pytest.raises(VolumeFailure) as failure:
            mounts.take_down(top)
    assert failure.value.reason == "FailedUnmount"
    assert (kept / "precious").exists()
    assert kept.stat().st_mode & 0o777 == 0o755


def test_everything_goes_whatever_it_is(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "link").symlink_to(outside)
    (top / "a" / "dead").symlink_to("nowhere")
    os.mkfifo(top / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(top / "socket"))
    (top / "locked").mkdir()
    (top / "locked" / "inner").mkdir()
    (top / "locked" / "inner" / "file").touch()
    (top / "locked" / "inner").chmod(0)
    (top / "locked").chmod(0)
    mounts.take_down(top)
    assert not top.exists()
    assert (outside / "precious").exists()


def test_a_tree_too_deep_for_any_path_goes(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.getcwd()
    try:
        os.chdir(top)
        for _ in range(1500):
            os.mkdir("deeper")
            os.chdir("deeper")
    finally:
        os.chdir(here)
    mounts.take_down(top)
    assert not top.exists()


def test_what_is_not_there_is_taken_down_already(tmp_path: Path) -> None:
    mounts.take_down(tmp_path / "nothing")
