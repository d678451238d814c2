"""Checks of the files of a cluster."""

import os
from pathlib import Path

import pytest

from kedge.cli.cluster import integrity, state
from kedge.cli.failure import Failure

ETCD = "etcd://127.0.0.1:2379"
PLACES = (
    "token",
    "store.db",
    "server.json",
    "gateway.json",
    "pki/ca.crt",
    "pki/front-proxy/ca.key",
    "nodes/node-1/node.json",
    "nodes/node-1/network/network",
    "nodes/node-1/runtime/supervisor.lock",
)


@pytest.mark.parametrize("place", PLACES)
def test_a_fifo_in_place_of_a_file_is_refused_before_a_start_opens_it(
    tmp_path: Path, place: str
) -> None:
    state.prepare(tmp_path, "blue")
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(file)
    with pytest.raises(Failure, match=f"{file} is a FIFO, not a regular file: remove it, or put"):
        integrity.check_types(tmp_path)


def test_a_link_to_nothing_and_one_to_a_device_are_refused(tmp_path: Path) -> None:
    state.prepare(tmp_path, "blue")
    for target in (tmp_path / "gone", Path(os.devnull)):
        (tmp_path / "token").symlink_to(target)
        with pytest.raises(Failure, match="token is a link, not a regular file"):
            integrity.check_types(tmp_path)
        (tmp_path / "token").unlink()


def test_images_may_be_on_another_disk(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    directory = tmp_path / "blue"
    state.prepare(directory, "blue")
    (directory / "images").symlink_to(tmp_path / "large")
    integrity.check_types(directory)


def test_files_of_containers_are_their_own(tmp_path: Path) -> None:
    pod = tmp_path / "nodes" / "node-1" / "pods" / "uid" / "volumes"
    pod.mkdir(parents=True)
    os.mkfifo(pod / "queue")
    integrity.check_types(tmp_path)
    integrity.check_node_types(tmp_path / "nodes" / "node-1")


def test_a_fifo_that_prevents_ending_the_containers_of_a_node_is_named(tmp_path: Path) -> None:
    (tmp_path / "network").mkdir()
    os.mkfifo(tmp_path / "network" / "network")
    with pytest.raises(Failure, match="network/network is a FIFO, not a regular file"):
        integrity.check_node_types(tmp_path)


@pytest.mark.parametrize("how", ["fifo", "link", "device link", "directory"])
def test_a_lock_that_is_no_regular_file_is_refused_and_not_waited_for(
    tmp_path: Path, how: str
) -> None:
    lock = tmp_path / "change.lock"
    match how:
        case "fifo":
            os.mkfifo(lock)
        case "link":
            lock.symlink_to(tmp_path / "gone")
        case "device link":
            lock.symlink_to("/dev/zero")
        case "directory":
            lock.mkdir()
    with pytest.raises(Failure, match=r"change\.lock|Is a directory"), state.changing(tmp_path):
        pass
    assert not (tmp_path / "gone").exists()


def test_a_record_that_is_a_fifo_is_refused_with_what_to_do(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cluster.json")
    with pytest.raises(Failure, match=r"is not a regular file: remove .*, and 'kedge up' makes it"):
        state.read(tmp_path)


def test_other_records_that_are_fifos_count_as_missing(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    for name in ("server.json", "pki/ca.crt"):
        os.mkfifo(tmp_path / name)
    assert state.read_server(tmp_path) is None
    assert state.authority(tmp_path) == b""


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
    with pytest.raises(integrity.StoreElsewhere, match=f"--store {ETCD}"):
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
