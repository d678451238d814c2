from pathlib import Path

import pytest

from kedge.cli.cluster import integrity, state
from kedge.cli.failure import Failure

ETCD = "etcd://127.0.0.1:2379"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a cluster that has run."""
    made = tmp_path / "dev"
    state.prepare(made, "dev")
    (made / "pki").mkdir()
    for name in ("pki/ca.crt", "pki/ca.key", "pki/sa.key", "pki/sa.pub", "token", "store.db"):
        (made / name).write_text("content")
    return made


def record(directory: Path) -> state.ClusterRecord:
    found = state.read(directory)
    assert found is not None
    return found


def test_a_cluster_with_its_objects_in_etcd_does_not_start_with_another_store(
    directory: Path,
) -> None:
    integrity.record_files(directory, store=ETCD)
    assert integrity.check(directory, record(directory), store=ETCD) == []
    with pytest.raises(Failure, match=f"--store {ETCD}"):
        integrity.check(directory, record(directory), store="sqlite")


def test_objects_in_a_file_that_etcd_takes_the_place_of_are_mentioned(directory: Path) -> None:
    integrity.record_files(directory, store="sqlite")
    [note] = integrity.check(directory, record(directory), store=ETCD)
    assert "store.db are not used" in note


def test_a_lost_database_is_noticed(directory: Path) -> None:
    integrity.record_files(directory, store="sqlite")
    (directory / "store.db").unlink()
    assert integrity.check(directory, record(directory), store="memory") == []
    with pytest.raises(Failure, match="missing or empty"):
        integrity.check(directory, record(directory), store="sqlite")
