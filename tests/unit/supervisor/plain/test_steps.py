import os
from pathlib import Path

import pytest

from kedge.supervisor.plain import steps


def test_the_directory_of_a_path_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with steps.parent(f"{tmp_path}/a/b") as (above, name):
        assert os.path.samestat(os.fstat(above), (tmp_path / "a").stat())
    assert name == "b"


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("./absolute/../real")
    with steps.parent(f"{tmp_path}/relative/deep/x") as (above, _):
        assert os.path.samestat(os.fstat(above), (tmp_path / "real" / "deep").stat())


def test_missing_directories_are_made_and_told(tmp_path: Path) -> None:
    made: list[str] = []
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    with steps.parent(f"{tmp_path}/link/b/c/d", made):
        assert (tmp_path / "real" / "b" / "c").is_dir()
    assert made == [f"{tmp_path}/real/b", f"{tmp_path}/real/b/c"]


def test_missing_directories_are_an_error_otherwise(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), steps.parent(f"{tmp_path}/a/b/c"):
        pass
    assert not (tmp_path / "a").exists()


def test_a_file_on_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = pytest.raises(NotADirectoryError, match="is not a directory")
    with error, steps.parent(f"{tmp_path}/file/x", []):
        pass


def test_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many"), steps.parent(f"{tmp_path}/a/x", []):
        pass


def test_the_link_of_another_mount_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mount").symlink_to("/proc/self/fd/700")
    error = pytest.raises(OSError, match=r'mount" is a mount path too')
    with error, steps.parent(f"{tmp_path}/mount/below", []):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_directories_and_links_of_other_users_are_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    os.chown(tmp_path / "theirs", 1234, 1234)
    os.chown(tmp_path / "link", 1234, 1234, follow_symlinks=False)
    for name in ("theirs", "link"):
        error = pytest.raises(steps.ForeignPath, match="belongs to user 1234")
        with error, steps.parent(f"{tmp_path}/{name}/x", []):
            pass
