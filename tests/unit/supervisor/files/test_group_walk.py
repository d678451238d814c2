"""The group of files in a directory whose content a container controls."""

import os
import stat
from pathlib import Path

from kedge.supervisor.files import group_walk

GROUP = os.getgid()
"""A group that an ordinary user may give files to."""


def give(place: Path, *, stopped: bool = False) -> int:
    return group_walk.give(place, GROUP, is_stopped=lambda: stopped)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_become_writable_and_directories_pass_the_group_on(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o700)
    (tmp_path / "d" / "f").write_text("x")
    (tmp_path / "d" / "f").chmod(0o600)
    assert give(tmp_path) == 3
    assert mode(tmp_path / "d" / "f") == 0o660
    assert mode(tmp_path / "d") == 0o2770


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o600)
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "link").symlink_to(outside)
    (volume / "up").symlink_to("..")
    give(volume)
    assert mode(outside) == 0o600


def test_a_stopped_walk_leaves_the_top_for_the_next_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "f").write_text("x")
    assert give(tmp_path, stopped=True) == 0
    assert mode(tmp_path) == 0o700
    give(tmp_path)
    assert mode(tmp_path) == 0o2770


def test_directories_nested_very_deep_end_the_walk(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert give(tmp_path) <= 258
