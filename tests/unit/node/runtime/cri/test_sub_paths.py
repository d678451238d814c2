from pathlib import Path

import pytest

from kedge.node.runtime.cri import sub_paths
from kedge.node.runtime.runtime import ContainerMount, RuntimeFailure
from kedge.node.volumes import mounts
from kedge.supervisor.kernel import libc


def part_of(volume: Path, part: str) -> ContainerMount:
    return ContainerMount(container_path="/data", host_path=str(volume), part=part)


def test_whole_volumes_are_mounted_by_the_runtime(tmp_path: Path) -> None:
    mount = ContainerMount(container_path="/data", host_path=str(tmp_path))
    assert sub_paths.mounted([mount], tmp_path / "place") == [mount]
    assert not (tmp_path / "place").exists()


@pytest.mark.parametrize("part", ["link", "../outside", "absent"])
def test_a_subpath_that_leads_out_is_refused(tmp_path: Path, part: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "outside").mkdir()
    (volume / "link").symlink_to(tmp_path / "outside")
    mount = ContainerMount(container_path="/data", host_path=str(volume), part=part)
    with pytest.raises(RuntimeFailure, match="failed to prepare subPath for volumeMount /data"):
        sub_paths.mounted([mount], tmp_path / "place")
    assert not (tmp_path / "place").exists()


def test_places_are_removed_twice(tmp_path: Path) -> None:
    (tmp_path / "place" / "main-0" / "0").mkdir(parents=True)
    sub_paths.unmount_all(tmp_path / "place")
    sub_paths.unmount_all(tmp_path / "place")
    assert not (tmp_path / "place").exists()


def test_the_files_of_a_volume_outlive_its_mounts(mountable: Path) -> None:
    volume, place = mountable / "volume", mountable / "place" / "main-0"
    (volume / "inner" / "deep").mkdir(parents=True)
    (volume / "inner" / "deep" / "file").write_text("precious")
    (volume / "single").write_text("precious")
    # The second time, the mounts of an agent that was killed are there.
    for _ in range(2):
        got = sub_paths.mounted([part_of(volume, "inner"), part_of(volume, "single")], place)
    assert (Path(got[0].host_path) / "deep" / "file").read_text() == "precious"
    assert Path(got[1].host_path).read_text() == "precious"
    assert len(mounts.below(place)) == 2
    sub_paths.unmount_all(place.parent)
    assert mounts.below(mountable) == []
    assert not place.parent.exists()
    assert (volume / "inner" / "deep" / "file").read_text() == "precious"
    assert (volume / "single").read_text() == "precious"


def test_what_is_mounted_below_a_shared_volume_stays(mountable: Path) -> None:
    volume, place = mountable / "volume", mountable / "place"
    volume.mkdir()
    mounts.memory(volume)
    libc.mount("", str(volume), flags=libc.MS_SHARED)
    (volume / "inner" / "other").mkdir(parents=True)
    mounts.memory(volume / "inner" / "other")
    sub_paths.mounted([part_of(volume, "inner")], place)
    assert len(mounts.below(place)) == 2
    sub_paths.unmount_all(place)
    assert mounts.below(mountable) == [str(volume / "inner" / "other"), str(volume)]


def test_a_mount_that_stays_is_a_failure(mountable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mountable / "volume" / "inner").mkdir(parents=True)
    sub_paths.mounted([part_of(mountable / "volume", "inner")], mountable / "place")
    with monkeypatch.context() as patch:
        patch.setattr(libc, "unmount", lambda target: None)
        with pytest.raises(RuntimeFailure, match="place/0 is still in use"):
            sub_paths.unmount_all(mountable / "place")
