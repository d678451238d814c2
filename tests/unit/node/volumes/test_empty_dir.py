"""Directories of pods: where they are kept, who may write to them, how much they hold."""

import os
import stat
from pathlib import Path

import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.volume.volume import EmptyDirVolumeSource
from kedge.machinery.quantity import Quantity
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.volumes import empty_dir, mounts
from kedge.supervisor.files import mapped
from kedge.supervisor.files.mapped import FileOwner


def mode(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


def pod(**requests: str) -> Pod:
    asked = {name.replace("_", "-"): text for name, text in requests.items()}
    containers = [{"name": "c", "image": "i", "resources": {"requests": asked}}]
    return RESOURCE.from_document({"metadata": {"name": "p"}, "spec": {"containers": containers}})


def test_everybody_may_write_whatever_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        empty_dir.make_on_disk(tmp_path / "volumes" / "v", -1)
    finally:
        os.umask(previous)
    assert mode(tmp_path / "volumes" / "v") == 0o777
    assert os.listdir(tmp_path / "volumes") == ["v"]


def test_what_containers_did_to_it_stays(tmp_path: Path) -> None:
    place = tmp_path / "v"
    empty_dir.make_on_disk(place, -1)
    place.chmod(0o700)
    (place / "file").touch()
    empty_dir.make_on_disk(place, -1)
    assert mode(place) == 0o700
    assert os.listdir(place) == ["file"]


def test_one_that_was_not_finished_is(tmp_path: Path) -> None:
    (tmp_path / "..v").mkdir(0o700)
    empty_dir.make_on_disk(tmp_path / "v", -1)
    assert os.listdir(tmp_path) == ["v"]
    assert mode(tmp_path / "v") == 0o777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories to a group")
def test_files_in_it_belong_to_the_pods_group(tmp_path: Path) -> None:
    empty_dir.make_on_disk(tmp_path / "v", 1234)
    assert mode(tmp_path / "v") == 0o2777
    (tmp_path / "v" / "file").touch()
    assert (tmp_path / "v" / "file").stat().st_gid == 1234


def test_memory_holds_no_more_than_its_limit(mountable: Path) -> None:
    place = mountable / "v"
    empty_dir.mount_in_memory(place, "Memory", 1234, 64 * 1024)
    assert mode(place) == 0o3777
    assert place.stat().st_gid == 1234
    with pytest.raises(OSError, match="No space left"):
        (place / "file").write_bytes(b"x" * 65 * 1024)


def test_memory_is_mounted_once(mountable: Path) -> None:
    for _ in range(2):
        empty_dir.mount_in_memory(mountable / "v", "Memory", -1, 0)
    assert mounts.below(mountable) == [str(mountable / "v")]
    assert mode(mountable / "v") == 0o1777


def test_huge_pages_are_mounted(mountable: Path) -> None:
    if "hugetlbfs" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no huge pages")
    empty_dir.mount_in_memory(mountable / "v", "HugePages-2Mi", -1, 0)
    lines = Path("/proc/self/mounts").read_text().splitlines()
    [line] = [each for each in lines if f" {mountable}/v " in each]
    assert "hugetlbfs" in line
    assert "pagesize=2M" in line
    assert mode(mountable / "v") == 0o1777


@pytest.mark.parametrize(
    ("own", "limit", "allocatable", "size"),
    [
        (None, -1, 0, 0),
        (None, -1, 1000, 1000),
        (None, 500, 1000, 500),
        ("100", 500, 1000, 100),
        ("700", 500, 1000, 500),
        ("0", 500, 1000, 500),
        ("2000", -1, 1000, 1000),
    ],
)
def test_memory_is_limited_by_the_least_of_all_limits(
    own: str | None, limit: int, allocatable: int, size: int
) -> None:
    given = EmptyDirVolumeSource(sizeLimit=None if own is None else Quantity.parse(own))
    assert empty_dir.size_in_memory(given, limit, allocatable) == size


def whole_medium(medium: str, **requests: str) -> str:
    return empty_dir.whole_medium(EmptyDirVolumeSource(medium=medium), pod(**requests))


def test_size_of_huge_pages_is_found_in_what_containers_ask_for() -> None:
    assert whole_medium("HugePages", hugepages_2Mi="4Mi") == "HugePages-2Mi"
    assert whole_medium("HugePages-1Gi", hugepages_2Mi="4Mi", hugepages_1Gi="1Gi") == (
        "HugePages-1Gi"
    )


@pytest.mark.parametrize(
    ("medium", "requests", "text"),
    [
        ("Cardboard", {}, 'unknown storage medium "Cardboard"'),
        (
            "HugePages",
            {"hugepages_2Mi": "4Mi", "hugepages_1Gi": "1Gi"},
            "medium: HugePages can't be used if container requests multiple huge page sizes",
        ),
        (
            "HugePages-1Gi",
            {"hugepages_2Mi": "4Mi"},
            "medium HugePages-1Gi: hugePages storage requested, but there is no resource request"
            " for huge pages",
        ),
    ],
)
def test_media_that_cannot_be_had_are_refused(
    medium: str, requests: dict[str, str], text: str
) -> None:
    with pytest.raises(VolumeFailure) as failure:
        whole_medium(medium, **requests)
    assert str(failure.value) == text


def test_subordinate_ids_give_it_to_a_group_that_the_agent_is_not_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[FileOwner] = []
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(mapped, "own", given.extend)
    group = os.getgid() + 1
    empty_dir.make_on_disk(tmp_path / "v", group)
    assert given == [FileOwner(str(tmp_path / "..v"), -1, group, 0o2777)]
