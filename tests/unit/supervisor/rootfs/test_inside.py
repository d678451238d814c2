import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.supervisor.rootfs import inside


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "root" / "etc").mkdir(parents=True)
    descriptor = os.open(tmp_path / "root", os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def where(descriptor: int) -> str:
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)
    return path


def test_missing_directories_and_files_are_made(root: int, tmp_path: Path) -> None:
    assert where(inside.directory(root, "/a/b/c")) == str(tmp_path / "root/a/b/c")
    assert where(inside.file(root, "/a/d/e.txt")) == str(tmp_path / "root/a/d/e.txt")
    assert (tmp_path / "root/a/d/e.txt").read_bytes() == b""


@pytest.mark.parametrize("target", ["/outside", "../../../outside", "/etc/../../outside"])
def test_links_lead_only_to_what_is_inside(root: int, tmp_path: Path, target: str) -> None:
    (tmp_path / "root" / "link").symlink_to(target)
    made = where(inside.directory(root, "/link/below"))
    assert made == str(tmp_path / "root/outside/below")
    assert not (tmp_path / "outside").exists()


def test_a_link_to_nothing_shows_what_is_missing(root: int, tmp_path: Path) -> None:
    (tmp_path / "root" / "var").mkdir()
    (tmp_path / "root" / "var" / "run").symlink_to("/run")
    assert where(inside.directory(root, "/var/run/secrets")) == str(tmp_path / "root/run/secrets")


def test_links_that_lead_in_circles_are_refused(root: int, tmp_path: Path) -> None:
    (tmp_path / "root" / "one").symlink_to("two")
    (tmp_path / "root" / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        inside.directory(root, "/one")


def test_what_is_not_there_is_none(root: int) -> None:
    assert inside.find(root, "/nothing") is None
    found = inside.find(root, "/etc")
    assert found is not None
    os.close(found)


def test_what_the_kernel_shows_gets_a_plain_directory(root: int, tmp_path: Path) -> None:
    assert where(inside.plain_directory(root, "proc")) == str(tmp_path / "root/proc")
    assert where(inside.plain_directory(root, "etc")) == str(tmp_path / "root/etc")


@pytest.mark.parametrize("target", ["etc", "/etc", "missing"])
def test_a_link_is_no_plain_directory(root: int, tmp_path: Path, target: str) -> None:
    (tmp_path / "root" / "proc").symlink_to(target)
    with pytest.raises(OSError, match='"/proc" of the image is not a directory'):
        inside.plain_directory(root, "proc")


def test_magic_links_are_not_followed(root: int, tmp_path: Path) -> None:
    outside = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    machine = os.open("/", os.O_PATH | os.O_DIRECTORY)
    with pytest.raises(OSError, match="symbolic links"):
        inside.find(machine, f"/proc/self/fd/{outside}")
    os.close(outside)
    os.close(machine)
