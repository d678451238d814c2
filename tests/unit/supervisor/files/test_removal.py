import os
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from kedge.supervisor.files import removal
from kedge.supervisor.kernel import inode_flags

DEPTH = 3000
"""Deeper than Python's stack, and than a path that the kernel takes."""


def nest(top: Path, depth: int, name: str = "nested-directory") -> None:
    """Make directories one in the other; far beyond what a path can say."""
    top.mkdir(exist_ok=True)
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


def test_what_is_removed_is_not_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    (tmp_path / "tree" / "locked").mkdir(parents=True)
    (tmp_path / "tree" / "locked" / "file").touch()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "tree" / "locked").chmod(0)
    assert removal.remove(tmp_path / "tree") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (tmp_path / "outside" / "file").exists()


def test_a_link_at_the_top_goes_alone(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    (tmp_path / "link").symlink_to("outside")
    assert removal.remove(tmp_path / "link") == ""
    assert removal.remove(tmp_path / "link") == ""
    assert (tmp_path / "outside" / "file").exists()


def test_directories_deeper_than_any_path(tmp_path: Path) -> None:
    nest(tmp_path / "tree", DEPTH)
    assert removal.remove(tmp_path / "tree") == ""
    assert not any(tmp_path.iterdir())


def test_descriptors_do_not_run_out(tmp_path: Path) -> None:
    nest(tmp_path / "tree", 200)
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    for each in held:
        os.close(each)
    assert removal.remove(tmp_path / "tree") == ""
    again = os.open("/dev/null", os.O_RDONLY)
    os.close(again)
    assert again == held[0]


def test_wide_directories_full_of_everything(tmp_path: Path) -> None:
    top = tmp_path / "tree"
    for number in range(2500):
        (top / str(number)).mkdir(parents=True)
    os.mkfifo(top / "fifo")
    (top / "7" / "..hidden").mkdir()
    (top / "a\nname\\with -everything").touch()
    os.link(top / "a\nname\\with -everything", top / "8" / "linked")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(top / "socket"))
    (top / "dangling").symlink_to("nowhere")
    assert removal.remove(top) == ""
    assert not any(tmp_path.iterdir())


def test_two_who_remove_the_same_do_not_leave_it_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    (top / "deep").mkdir(parents=True)
    for directory in (top, top / "deep"):
        for number in range(3):
            (directory / str(number)).touch()
    unlink = os.unlink

    def late(path: str, *, dir_fd: int) -> None:
        unlink(path, dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", late)
    assert removal.remove(top) == ""
    assert not top.exists()


def test_somebody_who_goes_on_writing_does_not_keep_us_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    written: list[Path] = []
    rmdir = os.rmdir

    def write_first(path: str, *, dir_fd: int) -> None:
        written.append(top / str(len(written)))
        written[-1].touch()
        rmdir(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", write_first)
        assert removal.remove(top) == "top: Directory not empty"
    assert len(written) < 50
    assert removal.remove(top) == ""


def test_an_end_of_time_is_kept_to_and_the_rest_goes_later(tmp_path: Path) -> None:
    nest(tmp_path / "tree", 50)
    looks = iter(range(100))
    assert "no time" in removal.remove(tmp_path / "tree", lambda: next(looks) > 10)
    assert (tmp_path / "tree").exists()
    assert removal.remove(tmp_path / "tree") == ""
    assert not (tmp_path / "tree").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="to lock a file takes root")
@pytest.mark.parametrize("flag", [inode_flags.IMMUTABLE, inode_flags.APPEND_ONLY])
def test_files_and_directories_that_may_not_be_changed(tmp_path: Path, flag: int) -> None:
    inside = tmp_path / "tree" / "inside"
    inside.mkdir(parents=True)
    (inside / "file").touch()
    try:
        for path in (inside / "file", inside, tmp_path / "tree"):
            inode_flags.open_and_change(str(path), None, on=flag)
    except OSError:
        pytest.skip("this file system has no such flags")
    assert removal.remove(tmp_path / "tree") == ""
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_somebody_who_is_not_root_is_not_kept_out_by_rights() -> None:
    # Not pytest's directory, which other users cannot read.
    home = Path(tempfile.mkdtemp(prefix="kedge-removal-"))
    tree = home / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").touch()
    for path in (tree / "a" / "b", tree / "a", tree):
        path.chmod(0)
    for path in (home, tree, tree / "a", tree / "a" / "b", tree / "a" / "b" / "file"):
        os.chown(path, 65534, 65534)
    script = (
        f"from kedge.supervisor.files.removal import remove; print(repr(remove({str(tree)!r})))"
    )
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"],
        input=script,
        env={"PYTHONPATH": str(Path(removal.__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("''\n", "")
    assert not any(home.iterdir())
    home.rmdir()
