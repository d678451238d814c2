"""Volumes on disk: made and removed as a whole."""

from pathlib import Path

import pytest

from kedge.node.storage.local_store import DATA, LocalVolumeRecord, LocalVolumeStore
from kedge.node.storage.volume_driver import DriverError

RECORD = LocalVolumeRecord(1 << 20)


def test_a_volume_is_found_again_with_its_size(tmp_path: Path) -> None:
    LocalVolumeStore(tmp_path / "v").make("a", RECORD)
    store = LocalVolumeStore(tmp_path / "v")
    assert [(each.handle, each.record) for each in store] == [("a", RECORD)]
    store.resize(next(iter(store)), 2 << 20)
    found = LocalVolumeStore(tmp_path / "v").find("a")
    assert found is not None
    assert found.record.size == 2 << 20


def test_what_a_killed_agent_left_half_made_is_no_volume(tmp_path: Path) -> None:
    store = LocalVolumeStore(tmp_path)
    (tmp_path / ".a.new" / DATA).mkdir(parents=True)
    assert store.find("a") is None
    assert list(store) == []
    store.make("a", RECORD)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_what_a_killed_agent_left_half_deleted_is_deleted(tmp_path: Path) -> None:
    store = LocalVolumeStore(tmp_path)
    store.make("a", RECORD).directory.rename(tmp_path / ".a.gone")
    assert store.find("a") is None
    store.remove("a")
    assert list(tmp_path.iterdir()) == []


def test_a_container_cannot_redirect_the_removal(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    store = LocalVolumeStore(tmp_path / "v")
    volume = store.make("a", RECORD)
    (volume.data / "link").symlink_to(outside)
    store.remove("a")
    assert (outside / "file").read_text() == "kept"


def test_a_damaged_record_is_an_error_and_not_a_new_volume(tmp_path: Path) -> None:
    store = LocalVolumeStore(tmp_path)
    (store.make("a", RECORD).directory / "volume.json").write_text("{")
    with pytest.raises(DriverError, match="damaged record"):
        store.find("a")


def test_a_missing_record_is_an_error_and_not_a_new_volume(tmp_path: Path) -> None:
    store = LocalVolumeStore(tmp_path)
    (store.make("a", RECORD).directory / "volume.json").unlink()
    with pytest.raises(DriverError, match=r"volume\.json is missing"):
        store.find("a")


def test_an_image_counts_with_its_whole_size(tmp_path: Path) -> None:
    store = LocalVolumeStore(tmp_path)
    before = store.free_bytes()
    record = LocalVolumeRecord(1 << 30, is_image=True, is_block=True)
    store.make("a", record)
    assert before - store.free_bytes() > 900 << 20


def test_one_damaged_record_does_not_stop_the_others(tmp_path: Path) -> None:
    store = LocalVolumeStore(tmp_path)
    (store.make("a", RECORD).directory / "volume.json").write_text("{")
    store.make("b", RECORD)
    assert [each.handle for each in store] == ["b"]
    assert store.handles() == ["a", "b"]
    assert store.free_bytes() > 0


def test_an_image_that_is_being_deleted_reserves_nothing(tmp_path: Path) -> None:
    record = LocalVolumeRecord(1 << 30, is_image=True, is_block=True)
    volume = LocalVolumeStore(tmp_path).make("a", record)
    volume.image.unlink()
    assert volume.reserved == 0
