"""A copy has everything that its source has."""

import os
import stat
from pathlib import Path

import pytest

from kedge.node.storage import tree_copy


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    (top / "inner").mkdir(parents=True)
    (top / "inner" / "file").write_text("content")
    os.utime(top / "inner" / "file", (1, 2))
    os.link(top / "inner" / "file", top / "second-name")
    (top / "link").symlink_to("/etc/passwd")
    os.mkfifo(top / "fifo", 0o640)
    (top / "inner").chmod(0o1711)
    return top


def test_content_modes_times_and_links_stay(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    tree_copy.copy(source, target)
    assert sorted(os.listdir(target)) == ["fifo", "inner", "link", "second-name"]
    copied = target / "inner" / "file"
    assert copied.read_text() == "content"
    assert copied.stat().st_mtime == 2
    assert copied.stat().st_ino == (target / "second-name").stat().st_ino
    assert copied.stat().st_ino != (source / "second-name").stat().st_ino
    assert os.readlink(target / "link") == "/etc/passwd"
    assert stat.S_ISFIFO((target / "fifo").stat().st_mode)
    assert (target / "inner").stat().st_mode & 0o7777 == 0o1711


def test_holes_stay_holes(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with open(image, "wb") as file:
        file.seek(5 << 20)
        file.write(b"x" * 4096)
        file.truncate(64 << 20)
    tree_copy.copy(image, tmp_path / "copy")
    copied = tmp_path / "copy"
    assert copied.read_bytes() == image.read_bytes()
    assert copied.stat().st_blocks * 512 < 1 << 20


def test_an_empty_file_and_an_empty_directory_are_copied(tmp_path: Path) -> None:
    (tmp_path / "source" / "empty").mkdir(parents=True)
    (tmp_path / "source" / "file").touch()
    tree_copy.copy(tmp_path / "source", tmp_path / "target")
    assert sorted(os.listdir(tmp_path / "target")) == ["empty", "file"]
