"""What is asked of the machine's files, and what is said when they are something else."""

import os
import socket
import stat
from pathlib import Path

import pytest

from kedge.api.core_v1.volume.volume import HostPathVolumeSource
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.volumes import host_path


def check(path: Path | str, kind: str | None) -> None:
    host_path.check(HostPathVolumeSource(path=str(path), type=kind))


@pytest.fixture
def things(tmp_path: Path) -> Path:
    """One of each kind, named by it."""
    (tmp_path / "Directory").mkdir()
    (tmp_path / "File").touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "Socket"))
    (tmp_path / "CharDevice").symlink_to("/dev/null")
    return tmp_path


@pytest.mark.parametrize("kind", ["Directory", "File", "Socket", "CharDevice"])
def test_what_is_there_fits_its_own_kind_only(kind: str, things: Path) -> None:
    words = {
        "Directory": "a directory",
        "File": "a file",
        "Socket": "a socket file",
        "CharDevice": "a character device",
        "BlockDevice": "a block device",
    }
    for other, said in words.items():
        path = things / kind
        if other == kind:
            check(path, other)
            continue
        with pytest.raises(VolumeFailure) as failure:
            check(path, other)
        assert str(failure.value) == f"hostPath type check failed: {path} is not {said}"


@pytest.mark.parametrize("kind", [None, ""])
def test_without_a_kind_anything_goes_and_nothing(kind: str | None, tmp_path: Path) -> None:
    check(tmp_path / "missing", kind)
    assert not (tmp_path / "missing").exists()


def test_a_directory_is_made_with_all_above_it(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    check(place, "DirectoryOrCreate")
    check(place, "DirectoryOrCreate")
    assert stat.S_IMODE(place.stat().st_mode) == 0o755


def test_a_file_is_made_but_no_directory_for_it(tmp_path: Path) -> None:
    check(tmp_path / "file", "FileOrCreate")
    assert (tmp_path / "file").read_bytes() == b""
    with pytest.raises(VolumeFailure, match=r"^open .*/no/file: no such file or directory$"):
        check(tmp_path / "no" / "file", "FileOrCreate")


def test_what_is_there_is_not_made_into_something_else(things: Path) -> None:
    with pytest.raises(VolumeFailure, match="is not a directory"):
        check(things / "File", "DirectoryOrCreate")
    with pytest.raises(VolumeFailure, match="is not a file"):
        check(things / "Directory", "FileOrCreate")
