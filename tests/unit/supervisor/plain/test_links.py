import os
import stat
from pathlib import Path

import pytest

from kedge.supervisor.plain.links import FIRST, MountLinks


@pytest.fixture
def links(tmp_path: Path) -> MountLinks:
    return MountLinks(str(tmp_path / "register"))


@pytest.fixture
def holders(tmp_path: Path) -> list[str]:
    """The directories of two containers."""
    found = [tmp_path / "runtime" / "containers" / name for name in ("a", "b")]
    for each in found:
        each.mkdir(parents=True)
    return [str(each) for each in found]


def test_a_link_leads_to_a_descriptor_of_its_reader(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "etc" / "config")
    assert links.take(holders[0], [path]) == ({path: FIRST}, {})
    assert os.readlink(path) == f"/proc/self/fd/{FIRST}"


def test_containers_share_the_link_of_a_path(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    first, _ = links.take(holders[0], [one])
    second, _ = links.take(holders[1], [other, one])
    assert second == {other: FIRST + 1, one: first[one]}


def test_a_link_is_removed_with_its_last_container(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "new" / "deep" / "config"
    for holder in holders:
        links.take(holder, [str(path)])
    links.release(holders[0])
    assert path.is_symlink()
    links.release(holders[1])
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "register").exists()


def test_a_directory_stays_while_another_link_is_in_it(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    links.take(holders[0], [str(tmp_path / "new" / "a")])
    links.take(holders[1], [str(tmp_path / "new" / "b")])
    links.release(holders[0])
    assert os.listdir(tmp_path / "new") == ["b"]
    links.release(holders[1])
    assert not (tmp_path / "new").exists()


def test_a_path_of_the_machine_is_left_alone(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    taken, file = tmp_path / "taken", tmp_path / "file"
    taken.mkdir()
    (taken / "content").touch()
    file.touch()
    numbers, refused = links.take(holders[0], [str(taken), f"{taken}/x/y", str(file)])
    assert numbers == {f"{taken}/x/y": FIRST}
    assert refused == {
        str(taken): "the machine has a directory with files there",
        str(file): "the machine has a file or directory there",
    }
    links.release(holders[0])
    assert os.listdir(taken) == ["content"]


def test_an_empty_directory_gives_way_and_comes_back(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    empty.chmod(0o750)
    for holder in holders:
        assert links.take(holder, [str(empty)]) == ({str(empty): FIRST}, {})
    assert empty.is_symlink()
    links.release(holders[0])
    assert empty.is_symlink()
    links.release(holders[1])
    assert stat.S_ISDIR(empty.lstat().st_mode)
    assert stat.S_IMODE(empty.lstat().st_mode) == 0o750


def test_the_next_supervisor_brings_it_back(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    """A supervisor may be killed after it removed the directory, and before it made the link."""
    empty = tmp_path / "empty"
    empty.mkdir(0o755)
    links.take(holders[0], [str(empty)])
    empty.unlink()
    links.release_below(str(tmp_path / "runtime"))
    assert empty.is_dir()
    assert not empty.is_symlink()


def test_a_directory_in_which_others_make_files_is_left_alone(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    assert links.take(holders[0], [str(shared)])[0] == {}
    assert not shared.is_symlink()


def test_nothing_is_made_for_a_path_that_is_refused(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    _, refused = links.take(holders[0], [f"{tmp_path}/file/below"])
    assert refused == {f"{tmp_path}/file/below": f'"{tmp_path}/file" is not a directory'}
    assert not (tmp_path / "register").exists()


def test_a_path_below_another_mount_path_is_refused(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    _, refused = links.take(holders[0], [f"{tmp_path}/a", f"{tmp_path}/a/b"])
    assert refused == {f"{tmp_path}/a/b": f'"{tmp_path}/a" is a mount path too'}


def test_what_replaced_a_link_is_not_removed(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "config"
    links.take(holders[0], [str(path)])
    path.unlink()
    path.write_text("mine")
    links.release(holders[0])
    assert path.read_text() == "mine"


def test_a_link_that_was_removed_is_made_again(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "config"
    links.take(holders[0], [str(path)])
    path.unlink()
    links.take(holders[1], [str(path)])
    assert path.is_symlink()


def test_the_links_of_a_killed_supervisor_are_removed_by_the_next(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    links.take(holders[0], [str(tmp_path / "a")])
    links.release_below(str(tmp_path / "other"))
    assert (tmp_path / "a").is_symlink()
    links.release_below(str(tmp_path / "runtime"))
    assert not (tmp_path / "a").is_symlink()


def test_a_container_whose_directory_is_gone_holds_nothing(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    links.take(holders[0], [str(tmp_path / "a")])
    os.rmdir(holders[0])
    links.release(holders[1])
    assert not (tmp_path / "a").is_symlink()


def test_there_are_only_so_many_numbers(
    links: MountLinks, holders: list[str], tmp_path: Path
) -> None:
    paths = [str(tmp_path / f"p{number}") for number in range(401)]
    numbers, refused = links.take(holders[0], paths)
    assert len(numbers) == 400
    assert refused == {paths[-1]: "containers of this machine use 400 mount paths already"}
