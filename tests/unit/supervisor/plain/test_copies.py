import errno
import os
import stat
from pathlib import Path

import pytest

from kedge.supervisor.plain import copies
from kedge.supervisor.plain.copies import TreeCopier


def opened(path: Path) -> int:
    path.mkdir(exist_ok=True)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def publish(volume: Path, name: str, files: dict[str, str]) -> None:
    """Publish files as volumes that follow objects do."""
    (volume / name).mkdir(parents=True)
    for key, text in files.items():
        (volume / name / key).write_text(text)
        if not (volume / key).is_symlink():
            (volume / key).symlink_to(f"..data/{key}")
    for link in volume.iterdir():
        if not link.name.startswith("..") and link.name not in files:
            link.unlink()
    (volume / "..new").symlink_to(name)
    (volume / "..new").rename(volume / "..data")


def shown(directory: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in directory.iterdir() if each.is_file()}


def test_directories_files_links_and_modes_are_copied(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    deep = tmp_path / "source" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").write_text("text")
    (deep / "file").chmod(0o640)
    (deep / "link").symlink_to("file")
    os.mkfifo(deep / "pipe")
    deep.chmod(0o751)
    TreeCopier().copy(source, target)
    copy = tmp_path / "target" / "a" / "b"
    assert sorted(os.listdir(copy)) == ["file", "link"]
    assert (copy / "link").read_text() == "text"
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (copy, copy / "file")]
    assert modes == [0o751, 0o640]


@pytest.mark.parametrize(("most_bytes", "most_entries"), [(3, 100), (100, 2)])
def test_a_copy_is_bounded(tmp_path: Path, most_bytes: int, most_entries: int) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    for name in ("a", "b", "c"):
        (tmp_path / "source" / name).write_text("xx")
    with pytest.raises(OSError, match="it has more than") as raised:
        TreeCopier(most_bytes, most_entries).copy(source, target)
    assert raised.value.errno == errno.EFBIG


def test_depth_is_bounded(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    (tmp_path / "source").joinpath(*["d"] * 70).mkdir(parents=True)
    with pytest.raises(OSError, match="more than 64 levels"):
        TreeCopier().copy(source, target)


def test_nothing_that_exists_is_written_to(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    (tmp_path / "source" / "file").write_text("new")
    (tmp_path / "precious").write_text("gold")
    (tmp_path / "target" / "file").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        TreeCopier().copy(source, target)
    assert (tmp_path / "precious").read_text() == "gold"


def test_a_copy_follows_its_volume(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    publish(tmp_path / "source", "..1", {"a": "1", "gone": "x"})
    TreeCopier().copy(source, target)
    assert not copies.refresh(source, target)
    publish(tmp_path / "source", "..2", {"a": "2", "new": "y"})
    assert copies.refresh(source, target)
    assert shown(tmp_path / "target") == {"a": "2", "new": "y"}
    assert sorted(os.listdir(tmp_path / "target")) == ["..2", "..data", "a", "new"]


def test_a_refresh_that_was_killed_is_repeated(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    publish(tmp_path / "source", "..1", {"a": "1"})
    (tmp_path / "target" / "..1").mkdir()
    (tmp_path / "target" / "..1" / "half").touch()
    (tmp_path / "target" / "..data_tmp").symlink_to("x")
    assert copies.refresh(source, target)
    assert shown(tmp_path / "target") == {"a": "1"}


def test_links_of_a_container_lead_nowhere(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    publish(tmp_path / "source", "..1", {"a": "1"})
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "precious").write_text("gold")
    (tmp_path / "target" / "..data").symlink_to("../machine")
    (tmp_path / "target" / "..1").symlink_to(tmp_path / "machine")
    try:
        copies.refresh(source, target)
    finally:
        assert os.listdir(tmp_path / "machine") == ["precious"]
