"""The directory of a cluster."""

import errno
import fcntl
import json
import stat
from pathlib import Path

import msgspec
import pytest

from kedge.cli.cluster import state
from kedge.cli.failure import Failure
from kedge.machinery import ownership


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
    "content",
    [
        '{"layout": 7, "name": "blue"}',
        '{"layout": 0, "name": "blue"}',
        '{"layout": true, "name": "blue"}',
        '{"layout": "1", "name": "blue"}',
        '{"name": "blue"}',
        "[]",
    ],
)
def test_another_layout_is_reported_and_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(Failure, match=r"arranged by another version .*pip install --upgrade"):
        state.prepare(tmp_path, "blue")
    assert (tmp_path / "cluster.json").read_text() == content
    assert [each.name for each in tmp_path.iterdir()] == ["cluster.json"]


def test_fields_of_a_newer_kedge_with_the_same_layout_are_no_trouble(tmp_path: Path) -> None:
    state.prepare(tmp_path, "blue")
    known = json.loads((tmp_path / "cluster.json").read_text())
    (tmp_path / "cluster.json").write_text(json.dumps(known | {"colour": "blue"}))
    assert state.prepare(tmp_path, "blue").name == "blue"


@pytest.mark.parametrize("content", ["", "{", '{"layout": 1, "na', "\0" * 20])
def test_a_torn_record_is_made_again_and_the_old_one_kept(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").touch()
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(state.RecordDamaged, match=r"is damaged .* give its name"):
        state.read(tmp_path)
    assert state.prepare(tmp_path, "blue") == state.ClusterRecord(name="blue", kept=("pki/ca.crt",))
    assert (tmp_path / "cluster.json.damaged").read_text() == content
    assert 'made again for the cluster "blue"' in capsys.readouterr().err


def test_a_missing_record_beside_a_store_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").touch()
    (tmp_path / "store.db").write_bytes(bytes(68) + b"kedg")
    assert state.prepare(tmp_path, "blue").kept == ("store.db", "pki/ca.crt")


def test_a_directory_that_others_may_look_into_is_closed_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o755)
    state.prepare(tmp_path, "blue")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    assert "had mode 0755" in capsys.readouterr().err


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(Failure, match="may be written to by other users, who would then control"):
        state.prepare(tmp_path, "blue")


def test_a_link_in_place_of_the_record_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text('{"layout": 1, "name": "blue"}')
    (tmp_path / "cluster.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(Failure, match=r"cluster\.json is a link"):
        state.read(tmp_path)


def test_what_is_remembered_is_not_written_again(tmp_path: Path) -> None:
    cluster = state.prepare(tmp_path, "blue")
    before = (tmp_path / "cluster.json").stat().st_ino
    state.write(tmp_path, cluster)
    assert (tmp_path / "cluster.json").stat().st_ino == before


def test_a_directory_that_may_not_be_read_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, limit: int = 0) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    # Root may read everything, so the refusal has to come from elsewhere than the file system.
    monkeypatch.setattr(ownership, "read", refuse)
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
        pytest.raises(state.ClusterGone, match="was deleted by another command"),
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
