"""Walks over directories that may be hostile."""

import os
from pathlib import Path

import pytest

from kedge.node.stats import disk_walk
from kedge.node.stats.disk_walk import DiskTotal, DiskWalk
from kedge.node.volumes.usage import disk_usage
from kedge.supervisor.files import removal
from kedge.testing import descriptors


def walked(*directories: Path, top_only: bool = False) -> DiskWalk:
    walk = DiskWalk([str(each) for each in directories], top_only=top_only)
    walk.advance(1_000_000)
    assert walk.done
    return walk


def fill(top: Path) -> None:
    (top / "a" / "b" / "c").mkdir(parents=True)
    for number in range(5):
        (top / "a" / f"{number}").write_bytes(b"x" * 5000)
        (top / "a" / "b" / "c" / f"{number}").write_bytes(b"x" * 100)


def test_a_walk_finds_what_a_single_look_finds(tmp_path: Path) -> None:
    fill(tmp_path)
    assert walked(tmp_path).total == DiskTotal(disk_usage([tmp_path]), 13)


def test_a_walk_takes_a_few_entries_at_a_time(tmp_path: Path) -> None:
    fill(tmp_path)
    walk = DiskWalk([str(tmp_path)])
    steps = 0
    while not walk.done:
        assert walk.advance(4) <= 4 + disk_walk.DIRECTORY_COST
        steps += 1
    assert steps > 4
    assert walk.total == walked(tmp_path).total


def test_links_and_special_files_are_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 100_000)
    inside.mkdir()
    (inside / "file").symlink_to(outside / "large")
    (inside / "directory").symlink_to(outside)
    os.mkfifo(inside / "fifo")
    assert walked(inside).total.inodes == 3
    assert walked(inside).total.bytes < 100_000


def test_a_file_with_several_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 5000)
    os.link(tmp_path / "one", tmp_path / "two")
    assert walked(tmp_path).total == DiskTotal(8192, 1)


def test_too_many_names_count_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_walk, "MOST_REMEMBERED", 0)
    (tmp_path / "one").write_bytes(b"x" * 5000)
    os.link(tmp_path / "one", tmp_path / "two")
    assert walked(tmp_path).total.inodes == 2


def test_trees_deeper_than_any_path_are_counted(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep" * 10, dir_fd=at)
        below = os.open("deep" * 10, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    walk = walked(tmp_path)
    # pytest cannot remove it.
    removal.remove(tmp_path / ("deep" * 10))
    assert (walk.total.inodes, walk.is_complete) == (3000, True)


def test_what_a_walk_remembers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_walk, "MOST_REMEMBERED", 3)
    for number in range(10):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "file").touch()
    walk = walked(tmp_path)
    assert (walk.total.inodes, walk.is_complete) == (13, False)
    (tmp_path / "deep" / "a" / "b" / "c" / "d").mkdir(parents=True)
    assert not walked(tmp_path / "deep").is_complete


def test_a_directory_that_is_moved_ends_the_walk(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "sub" / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").mkdir()
    walk = DiskWalk([str(inside)])
    while not (walk.total.inodes == 2 or walk.done):
        walk.advance(1)
    walk.advance(disk_walk.DIRECTORY_COST)
    (inside / "sub" / "deep").rename(outside / "deep")
    (inside / "sub").rename(outside / "sub")
    walk.advance(1000)
    assert walk.done
    assert walk.total.inodes == 2


def test_only_files_count_at_the_top(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "hosts").write_bytes(b"x")
    assert walked(tmp_path, top_only=True).total == DiskTotal(4096, 1)


def test_directories_that_do_not_exist_are_empty(tmp_path: Path) -> None:
    assert walked(tmp_path / "none", tmp_path).total == DiskTotal(0, 0)


def test_a_closed_walk_has_no_directory_open(tmp_path: Path) -> None:
    fill(tmp_path)
    walk = DiskWalk([str(tmp_path)])
    walk.advance(8)
    assert descriptors.below(tmp_path)
    walk.close()
    assert not descriptors.below(tmp_path)
