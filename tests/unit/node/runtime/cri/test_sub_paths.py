from pathlib import Path

import pytest

from kedge.node.runtime.cri import sub_paths
from kedge.node.runtime.runtime import ContainerMount, RuntimeFailure


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
