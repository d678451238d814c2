import os
from pathlib import Path

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
