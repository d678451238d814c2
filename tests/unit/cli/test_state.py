"""The directory of a cluster."""

import errno
import fcntl
import json
import stat
from pathlib import Path

import msgspec
import pytest

from kedge.cli import state
from kedge.cli.failure import Failure


def test_a_new_directory_is_for_its_owner_only(tmp_path: Path) -> None:
    state.prepare(tmp_path / "a" / "b", "blue")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_what_is_remembered_survives(tmp_path: Path) -> None:
    cluster = msgspec.structs.replace(state.prepare(tmp_path, "blue"), port=7001)
    state.write(tmp_path, cluster)
    assert state.prepare(tmp_path, "blue") == cluster


def test_a_directory_of_other_things_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(Failure, match=r"not empty \(it holds thesis.tex\)"):
        state.prepare(tmp_path, "blue")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_directory_of_another_cluster_is_not_taken_over(tmp_path: Path) -> None:
    state.prepare(tmp_path, "blue")
    with pytest.raises(Failure, match='holds the cluster "blue", not "green": use --name blue'):
        state.prepare(tmp_path, "green")


def test_a_directory_inside_of_another_clusters_is_refused(tmp_path: Path) -> None:
    state.prepare(tmp_path / "blue", "blue")
    with pytest.raises(Failure, match=r"in/green is inside of .*/blue, which is the dir"):
        state.prepare(tmp_path / "blue" / "in" / "green", "green")


def test_a_place_that_cannot_be_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match=r"Not a directory.* choose another with --state"):
        state.prepare(tmp_path / "file" / "state", "blue")


@pytest.mark.parametrize(
    "content", ['{"layout": 7, "name": "blue"}', '{"name": "blue"}', "{", "[]"]
)
def test_another_layout_is_reported_and_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(Failure, match="arranged by another version of kedge"):
        state.prepare(tmp_path, "blue")
    assert (tmp_path / "cluster.json").read_text() == content


def test_fields_of_a_newer_kedge_with_the_same_layout_are_no_trouble(tmp_path: Path) -> None:
    state.prepare(tmp_path, "blue")
    known = json.loads((tmp_path / "cluster.json").read_text())
    (tmp_path / "cluster.json").write_text(json.dumps(known | {"colour": "blue"}))
    assert state.prepare(tmp_path, "blue").name == "blue"


def test_a_directory_that_may_not_be_read_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    # Root may read everything, so the refusal has to come from elsewhere than the file system.
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(Failure, match=r"cannot be read: Permission denied.*--state"):
        state.read(tmp_path)


def test_who_waited_for_a_cluster_that_was_deleted_does_not_have_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "blue"
    state.prepare(directory, "blue")

    def flock(held: int, operation: int) -> None:
        """Whoever was before us deletes it, and it is made anew."""
        state.delete(directory)
        state.prepare(directory, "blue")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(state.Gone, match="was deleted by another command"),
        state.changing(directory),
    ):
        pass
    monkeypatch.undo()
    with state.changing(directory):
        pass


def test_the_lock_of_a_cluster_that_is_being_deleted_hinders_nobody(tmp_path: Path) -> None:
    directory = tmp_path / "blue"
    state.prepare(directory, "blue")
    with state.changing(directory):
        (directory / "cluster.json").unlink()
        state.prepare(directory, "blue")
        (directory / "store.db").touch()
        state.delete(directory)
    assert not directory.exists()
