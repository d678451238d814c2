import os
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.plain import prepared_root
from kedge.supervisor.spec import BindMount


def bind(source: Path, target: str, **more: Any) -> BindMount:
    whole: Any = {
        "source": str(source),
        "part": "",
        "target": target,
        "read_only": False,
        "recursive": False,
        "propagation": "None",
        **more,
    }
    found: BindMount = whole
    return found


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """An image with a file, and a link that leads out of it."""
    made = tmp_path / "layer"
    (made / "etc").mkdir(parents=True)
    (made / "etc" / "hosts").write_text("image")
    (made / "data").mkdir()
    (made / "data" / "old").touch()
    (made / "out").symlink_to("../../../..")
    return made


def made(tmp_path: Path, layer: Path, *binds: BindMount) -> tuple[Path, list[str]]:
    """The root with these mounts, and the notes."""
    notes: list[str] = []
    spec: Any = {"lowers": [str(layer)], "binds": list(binds)}
    prepared_root.make(spec, str(tmp_path / "root"), notes.append)
    return tmp_path / "root", notes


def test_a_file_is_the_same_on_both_sides(tmp_path: Path, layer: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("pod")
    root, notes = made(tmp_path, layer, bind(hosts, "/etc/hosts"), bind(hosts, "/new/file"))
    assert (root / "etc" / "hosts").read_text() == "pod"
    (root / "new" / "file").write_text("written")
    assert (hosts.read_text(), notes) == ("written", [])


def test_a_read_only_file_is_a_copy(tmp_path: Path, layer: Path) -> None:
    source = tmp_path / "source"
    source.write_text("text")
    root, _ = made(tmp_path, layer, bind(source, "/etc/hosts", read_only=True))
    (root / "etc" / "hosts").write_text("changed")
    assert source.read_text() == "text"


def test_a_read_only_directory_is_a_copy_that_hides_the_images(tmp_path: Path, layer: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "key").write_text("value")
    root, notes = made(tmp_path, layer, bind(tmp_path / "volume", "/data", read_only=True))
    assert os.listdir(root / "data") == ["key"]
    assert notes == ['"/data" is a copy: this machine allows no mounts']


def test_a_copy_that_follows_objects_needs_no_note(tmp_path: Path, layer: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "..1").mkdir(parents=True)
    (volume / "..data").symlink_to("..1")
    mount = bind(volume, "/data", read_only=True)
    assert prepared_root.follows(mount)
    assert not prepared_root.follows(bind(volume, "/data", part="x"))
    assert made(tmp_path, layer, mount)[1] == []


def test_a_directory_that_is_written_to_has_the_files_of_the_volume(
    tmp_path: Path, layer: Path
) -> None:
    (tmp_path / "volume").mkdir(mode=0o751)
    (tmp_path / "volume" / "file").write_text("text")
    root, notes = made(tmp_path, layer, bind(tmp_path / "volume", "/data"))
    assert os.listdir(root / "data") == ["file"]
    assert (root / "data" / "file").samefile(tmp_path / "volume" / "file")
    assert (root / "data").stat().st_mode & 0o777 == 0o751
    assert notes == []


def test_a_volume_of_another_file_system_is_refused_with_advice(
    tmp_path: Path, layer: Path
) -> None:
    other = Path("/dev/shm")
    with pytest.raises(OSError, match=r'at "/data": it is on another file.*CAP_SYS_ADMIN'):
        made(tmp_path, layer, bind(other, "/data"))


def test_links_of_the_image_stay_inside_of_the_root(tmp_path: Path, layer: Path) -> None:
    source = tmp_path / "source"
    source.write_text("text")
    root, _ = made(tmp_path, layer, bind(source, "/out/file"))
    assert (root / "file").read_text() == "text"


def test_a_root_is_made_once(tmp_path: Path, layer: Path) -> None:
    root, _ = made(tmp_path, layer)
    (root / "mine").touch()
    made(tmp_path, layer)
    assert (root / "mine").exists()


def test_copies_are_refreshed_by_a_child(tmp_path: Path, layer: Path) -> None:
    volume = tmp_path / "volume"
    for number in ("1", "2"):
        (volume / f"..{number}").mkdir(parents=True)
        (volume / f"..{number}" / "key").write_text(number)
    (volume / "..data").symlink_to("..1")
    (volume / "key").symlink_to("..data/key")
    mount = bind(volume, "/data", read_only=True)
    root, _ = made(tmp_path, layer, mount)
    (volume / "..data").unlink()
    (volume / "..data").symlink_to("..2")
    if (pid := os.fork()) == 0:
        prepared_root.refresh(str(root), [bind(tmp_path / "none", "/x"), mount])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (root / "data" / "key").read_text() == "2"
