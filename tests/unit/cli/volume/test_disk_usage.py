"""`kedge volume du` measures the data of local volumes."""

import json
from pathlib import Path

import pytest

from kedge.cli.cluster import state
from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.failure import Failure
from kedge.cli.volume import disk_usage
from kedge.node.storage.local_store import LocalVolumeRecord, LocalVolumeStore

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def where(tmp_path: Path) -> ClusterLocation:
    """A cluster that does not run."""
    state.prepare(tmp_path / "default", "default")
    return ClusterLocation(tmp_path, "default", None)


def volume(where: ClusterLocation, name: str, data: int, node: str = "node-1") -> Path:
    """Make a volume with a file."""
    store = LocalVolumeStore(where.root / where.name / "nodes" / node / "volumes")
    made = store.make(name, LocalVolumeRecord(1 << 20))
    (made.data / "file").write_bytes(b"x" * data)
    return made.directory


def test_each_volume_is_measured(where: ClusterLocation, capsys: Captured) -> None:
    volume(where, "pvc-b", 40960)
    volume(where, "pvc-a", 0)
    volume(where, "pvc-c", 0, "node-2")
    assert disk_usage.show(where, "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["node"], each["volume"]) for each in found["items"]] == [
        ("node-1", "pvc-a"),
        ("node-1", "pvc-b"),
        ("node-2", "pvc-c"),
    ]
    small, large, other = (each["bytes"] for each in found["items"])
    assert large - small == 40960
    assert found["bytes"] == small + large + other
    assert {(each["size"], each["kind"]) for each in found["items"]} == {(1 << 20, "directory")}


def test_the_table_ends_with_the_sum(where: ClusterLocation, capsys: Captured) -> None:
    volume(where, "pvc-a", 40 << 10)
    disk_usage.show(where, None)
    heads, row, total = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heads == ["NODE", "VOLUME", "USED", "SIZE", "KIND"]
    assert row[:2] + row[3:] == ["node-1", "pvc-a", "1.0Mi", "directory"]
    assert total == ["total", row[2]]


def test_links_of_a_container_are_not_followed(
    where: ClusterLocation, tmp_path: Path, capsys: Captured
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * (1 << 20))
    place = volume(where, "pvc-a", 0)
    (place / "data" / "link").symlink_to(outside)
    (place.parents[2] / "node-link").symlink_to(outside)
    disk_usage.show(where, "json")
    found = json.loads(capsys.readouterr().out)
    assert [each["volume"] for each in found["items"]] == ["pvc-a"]
    assert found["bytes"] < 1 << 20


def test_a_cluster_without_volumes(where: ClusterLocation, capsys: Captured) -> None:
    assert disk_usage.show(where, None) == 0
    assert capsys.readouterr().out == 'Cluster "default" has no local volumes on this machine.\n'


def test_there_must_be_a_cluster(where: ClusterLocation) -> None:
    with pytest.raises(Failure, match='there is no cluster "other" here: choose one with --name'):
        disk_usage.show(where._replace(name="other"), None)


def test_nodes_that_joined_a_cluster_elsewhere_have_volumes(
    tmp_path: Path, capsys: Captured
) -> None:
    where = ClusterLocation(tmp_path, "far", None)
    volume(where, "pvc-a", 0)
    disk_usage.show(where, None)
    assert "pvc-a" in capsys.readouterr().out


def test_a_volume_with_a_damaged_record_is_measured(
    where: ClusterLocation, capsys: Captured
) -> None:
    (volume(where, "pvc-a", 40960) / "volume.json").write_text("{")
    disk_usage.show(where, None)
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[:2] + row[3:] == ["node-1", "pvc-a", "<unknown>", "damaged"]


def test_the_measurement_has_a_deadline(
    where: ClusterLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(_: object) -> int:
        while True:
            pass

    volume(where, "pvc-a", 0)
    monkeypatch.setattr("kedge.node.volumes.usage.disk_usage", endless)
    monkeypatch.setattr(disk_usage, "_SECONDS", 0.01)
    with pytest.raises(Failure, match=r"could not be measured within 0.01 s"):
        disk_usage.show(where, None)
