"""Data of claims are not deleted unasked."""

import io
from pathlib import Path

import pytest

from kedge.cli.cluster import volume_data
from kedge.cli.failure import Failure
from kedge.node.storage.local_store import LocalVolumeRecord, LocalVolumeStore


class Terminal(io.StringIO):
    """An input that a person types."""

    def isatty(self) -> bool:
        return True


def cluster(directory: Path) -> Path:
    """A directory of a cluster with 8 KiB of data."""
    store = LocalVolumeStore(directory / "nodes" / "node-1" / "volumes")
    volume = store.make("pvc-1", LocalVolumeRecord(1 << 20))
    (volume.data / "file").write_bytes(b"x" * 8192)
    return directory


def test_a_cluster_without_claims_has_nothing_to_confirm(tmp_path: Path) -> None:
    found = volume_data.stored([tmp_path])
    assert found == []
    volume_data.confirm_deletion(found)


def test_a_volume_with_a_damaged_record_is_counted(tmp_path: Path) -> None:
    record = cluster(tmp_path) / "nodes/node-1/volumes/pvc-1/volume.json"
    record.write_text("{")
    [found] = volume_data.stored([tmp_path])
    assert found.volume == "pvc-1"
    assert found.bytes >= 8192


def test_a_script_must_say_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    found = volume_data.stored([cluster(tmp_path)])
    with pytest.raises(Failure, match=r"the data of 1 volume \(.*Ki\) would be deleted; nothing"):
        volume_data.confirm_deletion(found)


@pytest.mark.parametrize("answer", ["", "no", "y"])
def test_a_person_must_type_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    found = volume_data.stored([cluster(tmp_path)])
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    with pytest.raises(Failure, match="nothing was changed"):
        volume_data.confirm_deletion(found)


def test_yes_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    volume_data.confirm_deletion(volume_data.stored([cluster(tmp_path)]))
    assert "node-1/pvc-1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1023, "1023"), (4096, "4.0Ki"), (20 << 20, "20Mi"), (3 << 40, "3.0Ti")],
)
def test_amounts_are_for_people(size: int, text: str) -> None:
    assert volume_data.amount(size) == text
