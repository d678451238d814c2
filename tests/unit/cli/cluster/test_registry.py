"""Which clusters are here."""

import shutil
from pathlib import Path

import pytest

from kedge.cli.cluster import registry, state
from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.failure import Failure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def make(directory: Path, root: Path, name: str) -> None:
    registry.check_free(root, name, directory)
    state.prepare(directory, name)
    registry.register(root, name, directory)


def names(root: Path) -> list[str]:
    return [found.cluster.name for found in registry.every(root)]


def test_a_cluster_that_does_not_exist_is_told_with_those_that_do(tmp_path: Path) -> None:
    where = registry.ClusterLocation(tmp_path, "none", None)
    assert str(registry.absent(where)) == (
        "there is no cluster \"none\" here, and no other: 'kedge up' starts one"
    )
    state.prepare(tmp_path / "dev", "dev")
    assert "as in '--name dev'; the clusters are dev" in str(registry.absent(where))


def test_clusters_are_found_wherever_they_are(root: Path, tmp_path: Path) -> None:
    make(root / "blue", root, "blue")
    make(tmp_path / "elsewhere", root, "amber")
    assert names(root) == ["amber", "blue"]
    amber = registry.find(ClusterLocation(root, "amber", None))
    assert amber is not None
    assert amber.directory == tmp_path / "elsewhere"


def test_a_cluster_of_another_version_is_listed_apart_and_can_be_deleted(root: Path) -> None:
    make(root / "blue", root, "blue")
    make(root / "red", root, "red")
    (root / "red" / "cluster.json").write_text('{"layout": 7, "name": "crimson"}')
    assert names(root) == ["blue"]
    [(found, layout)] = registry.strange(root)
    assert (found.cluster.name, found.directory, layout) == ("red", root / "red", "7")
    where = ClusterLocation(root, "red", None)
    with pytest.raises(state.UnknownStateLayout, match="kedge down --purge"):
        registry.find(where)
    assert registry.find_to_delete(where) == found


def test_a_cluster_with_a_damaged_record_is_listed_apart_and_can_be_deleted(root: Path) -> None:
    make(root / "blue", root, "blue")
    make(root / "red", root, "red")
    (root / "red" / "cluster.json").write_text('{"layout": 1, "na')
    assert names(root) == ["blue"]
    [found] = registry.damaged(root)
    assert (found.cluster.name, found.directory) == ("red", root / "red")
    assert registry.find_to_delete(ClusterLocation(root, "red", None)) == found


def test_a_cluster_that_is_being_restored_is_not_listed(root: Path) -> None:
    make(root / "blue", root, "blue")
    shutil.copytree(root / "blue", root / ".green.restore-12345")
    (root / ".red.restore-12345").mkdir()
    (root / ".red.restore-12345" / "cluster.json").write_text('{"layout": 7}')
    assert names(root) == ["blue"]
    assert list(registry.strange(root)) == []
    assert list(registry.joined(root)) == []


def test_a_cluster_whose_directory_is_gone_is_gone(root: Path, tmp_path: Path) -> None:
    make(tmp_path / "elsewhere", root, "amber")
    shutil.rmtree(tmp_path / "elsewhere")
    assert names(root) == []
    assert registry.find(ClusterLocation(root, "amber", None)) is None
    make(tmp_path / "again", root, "amber")
    assert names(root) == ["amber"]


def test_things_that_are_no_clusters_are_passed_over(root: Path) -> None:
    make(root / "blue", root, "blue")
    (root / "notes.txt").touch()
    (root / "broken").mkdir()
    (root / "broken" / "cluster.json").write_text("{")
    assert names(root) == ["blue"]


def test_a_cluster_in_its_usual_place_is_not_hidden_by_one_elsewhere(
    root: Path, tmp_path: Path
) -> None:
    make(root / "blue", root, "blue")
    with pytest.raises(Failure, match='there is a cluster "blue" in'):
        make(tmp_path / "elsewhere", root, "blue")
    assert not (tmp_path / "elsewhere").exists()


def test_a_stopped_cluster_elsewhere_gives_its_name_away(root: Path, tmp_path: Path) -> None:
    make(tmp_path / "first", root, "amber")
    make(tmp_path / "second", root, "amber")
    assert [found.directory for found in registry.every(root)] == [tmp_path / "second"]


def test_forgetting_removes_the_entry_and_nothing_else(root: Path, tmp_path: Path) -> None:
    make(tmp_path / "elsewhere", root, "amber")
    registry.forget(root, "amber", tmp_path / "other")
    assert names(root) == ["amber"]
    registry.forget(root, "amber", tmp_path / "elsewhere")
    assert names(root) == []
    assert state.read(tmp_path / "elsewhere") is not None
