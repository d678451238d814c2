"""Unmounting without an agent."""

from pathlib import Path

from kedge.node.storage.local_store import LocalVolumeRecord, LocalVolumeStore
from kedge.node.storage.mount_records import MountRecord, MountRecords
from kedge.node.storage.teardown import unmount_all


def test_data_stay(tmp_path: Path) -> None:
    volume = LocalVolumeStore(tmp_path / "volumes").make("a", LocalVolumeRecord(1))
    (volume.data / "file").write_text("kept")
    record = MountRecord(uid="u", volume="v", name="pv", staging=str(tmp_path / "none"))
    MountRecords(tmp_path / "pods").write(record)
    assert unmount_all(tmp_path / "pods") == ""
    assert (volume.data / "file").read_text() == "kept"
