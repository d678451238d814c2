import fcntl
import os
from pathlib import Path

import pytest

from kedge.supervisor.files import removal
from kedge.supervisor.rootfs import layer_copy


def test_upper_layers_win_and_opaque_ones_hide_what_is_below(tmp_path: Path) -> None:
    low, top, into = tmp_path / "low", tmp_path / "top", tmp_path / "into"
    (low / "kept").mkdir(parents=True)
    (low / "hidden").mkdir()
    (low / "kept" / "low").write_text("low")
    (low / "hidden" / "low").write_text("low")
    (low / "file").write_text("low")
    (top / "kept").mkdir(parents=True)
    (top / "hidden").mkdir()
    (top / "hidden" / "top").write_text("top")
    (top / "file").write_text("top")
    (top / "link").symlink_to("/nowhere")
    os.setxattr(top / "hidden", "user.overlay.opaque", b"y")
    (top / "file").chmod(0o751)
    layer_copy.merge([str(top), str(low)], str(into))
    files = {str(path.relative_to(into)) for path in into.rglob("*") if not path.is_dir()}
    assert files == {"kept/low", "hidden/top", "file", "link"}
    assert (into / "file").read_text() == "top"
    assert (into / "file").stat().st_mode & 0o777 == 0o751
    assert (into / "link").readlink() == Path("/nowhere")


def test_layers_deeper_than_the_stack_are_copied(tmp_path: Path) -> None:
    low, into = tmp_path / "low", tmp_path / "into"
    low.mkdir()
    deep = low
    for _ in range(1500):
        deep = deep / "d"
        deep.mkdir()
    (deep / "file").write_text("x")
    layer_copy.merge([str(low)], str(into))
    assert (into / deep.relative_to(low) / "file").read_text() == "x"
    removal.remove(into)
    removal.remove(low)


@pytest.mark.parametrize("shares", [False, True])
def test_blocks_are_shared_where_the_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    (tmp_path / "lower").mkdir()
    (tmp_path / "lower" / "file").write_text("content")

    def clone(copy: int, request: int, content: int) -> None:
        assert request == layer_copy._FICLONE
        if not shares:
            raise OSError(95, "Operation not supported")
        os.write(copy, os.read(content, 100).upper())

    monkeypatch.setattr(fcntl, "ioctl", clone)
    layer_copy.merge([str(tmp_path / "lower")], str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "file").read_text() == ("CONTENT" if shares else "content")
