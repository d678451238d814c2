import errno
import os
import stat
from pathlib import Path

import pytest

from kedge.supervisor.plain.tree_pair import TreePair


class Pair:
    """Two directories with a pair around them."""

    def __init__(self, tmp_path: Path, *left_out: str, most_entries: int = 1000) -> None:
        self.left, self.right = tmp_path / "left", tmp_path / "right"
        self.left.mkdir()
        self.right.mkdir()
        ends = [os.open(each, os.O_RDONLY) for each in (self.left, self.right)]
        self.pair = TreePair(ends[0], ends[1], {}, left_out, most_entries)

    def merge(self) -> bool:
        return self.pair.merge()

    def names(self) -> tuple[list[str], list[str]]:
        """The paths of each side."""
        return _names(self.left), _names(self.right)


def _names(top: Path) -> list[str]:
    return sorted(str(each.relative_to(top)) for each in top.rglob("*"))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_file_is_one_file_on_both_sides(pair: Pair) -> None:
    (pair.left / "inner").mkdir()
    (pair.left / "inner" / "file").write_text("old")
    assert pair.merge()
    (pair.right / "inner" / "file").write_text("new")
    assert (pair.left / "inner" / "file").read_text() == "new"
    assert not pair.merge()


def test_entries_of_each_side_come_to_the_other(pair: Pair) -> None:
    (pair.left / "a").touch()
    (pair.right / "b").symlink_to("a")
    os.mkfifo(pair.right / "c")
    pair.merge()
    assert pair.names() == (["a", "b", "c"], ["a", "b", "c"])
    assert os.readlink(pair.left / "b") == "a"


def test_a_removal_is_done_on_the_other_side(pair: Pair) -> None:
    (pair.left / "inner" / "deep").mkdir(parents=True)
    (pair.left / "inner" / "deep" / "file").touch()
    (pair.left / "other").touch()
    pair.merge()
    (pair.right / "other").unlink()
    (pair.left / "inner" / "deep" / "file").unlink()
    (pair.left / "inner" / "deep").rmdir()
    (pair.left / "inner").rmdir()
    assert pair.merge()
    assert pair.names() == ([], [])


def test_a_file_that_took_the_place_of_another_replaces_it(pair: Pair) -> None:
    (pair.left / "file").write_text("old")
    pair.merge()
    (pair.right / "next").write_text("new")
    (pair.right / "next").rename(pair.right / "file")
    pair.merge()
    assert (pair.left / "file").read_text() == "new"
    assert pair.names() == (["file"], ["file"])


def test_a_directory_and_a_file_take_the_place_of_each_other(pair: Pair) -> None:
    (pair.left / "a").touch()
    (pair.left / "b").mkdir()
    pair.merge()
    (pair.right / "a").unlink()
    (pair.right / "a").mkdir()
    (pair.right / "a" / "file").touch()
    (pair.right / "b").rmdir()
    (pair.right / "b").touch()
    pair.merge()
    assert (pair.left / "a" / "file").exists()
    assert (pair.left / "b").is_file()


def test_new_files_survive_the_removal_of_their_directory_on_the_other_side(pair: Pair) -> None:
    (pair.left / "inner").mkdir()
    (pair.left / "inner" / "old").touch()
    pair.merge()
    (pair.left / "inner" / "old").unlink()
    (pair.left / "inner").rmdir()
    (pair.right / "inner" / "new").touch()
    pair.merge()
    pair.merge()
    assert pair.names() == (["inner", "inner/new"], ["inner", "inner/new"])


def test_of_two_changes_the_later_one_stays(pair: Pair) -> None:
    for side, seconds in ((pair.left, 100), (pair.right, 200)):
        (side / "file").write_text(side.name)
        os.utime(side / "file", (seconds, seconds))
    pair.merge()
    assert (pair.left / "file").read_text() == "right"
    assert (pair.right / "file").read_text() == "right"


def test_a_change_wins_against_a_removal(pair: Pair) -> None:
    (pair.left / "file").write_text("old")
    pair.merge()
    (pair.right / "file").unlink()
    (pair.left / "next").write_text("new")
    (pair.left / "next").rename(pair.left / "file")
    pair.merge()
    assert (pair.right / "file").read_text() == "new"


def test_modes_of_directories_follow_each_other(pair: Pair) -> None:
    (pair.left / "inner").mkdir(mode=0o750)
    pair.left.chmod(0o701)
    pair.right.chmod(0o755)
    pair.merge()
    # At first the right side has what was prepared for it: nothing was in common.
    assert stat.S_IMODE((pair.right / "inner").stat().st_mode) == 0o750
    (pair.right / "inner").chmod(0o711)
    pair.merge()
    assert stat.S_IMODE((pair.left / "inner").stat().st_mode) == 0o711


def test_paths_of_other_volumes_are_left_out(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "inner/other")
    (pair.left / "inner").mkdir()
    (pair.right / "inner" / "other").mkdir(parents=True)
    (pair.right / "inner" / "other" / "file").touch()
    pair.merge()
    assert pair.names()[0] == ["inner"]


def test_devices_stay_where_they_are(pair: Pair) -> None:
    try:
        os.mknod(pair.right / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        # An ordinary user makes no device.
        return
    pair.merge()
    assert pair.names()[0] == []


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    pair = Pair(tmp_path, most_entries=3)
    for number in range(5):
        (pair.right / str(number)).touch()
    with pytest.raises(OSError, match="more than 3 files") as raised:
        pair.merge()
    assert raised.value.errno == errno.EFBIG


def test_the_number_of_levels_is_bounded(pair: Pair) -> None:
    (pair.right / "/".join("d" * 70)).mkdir(parents=True)
    with pytest.raises(OSError, match="more than 64 levels"):
        pair.merge()


def test_no_link_is_followed(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").touch()
    (pair.left / "inner").mkdir()
    pair.merge()
    (pair.right / "inner").rmdir()
    (pair.right / "inner").symlink_to(tmp_path / "outside")
    pair.merge()
    assert (pair.left / "inner").is_symlink()
    assert os.listdir(tmp_path / "outside") == ["secret"]
