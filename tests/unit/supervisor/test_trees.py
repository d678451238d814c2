import os
from pathlib import Path

import pytest

from kedge.supervisor import trees


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
    trees.merge([str(top), str(low)], str(into))
    files = {str(path.relative_to(into)) for path in into.rglob("*") if not path.is_dir()}
    assert files == {"kept/low", "hidden/top", "file", "link"}
    assert (into / "file").read_text() == "top"
    assert (into / "file").stat().st_mode & 0o777 == 0o751
    assert (into / "link").readlink() == Path("/nowhere")


def test_a_tree_is_removed_but_not_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    (tmp_path / "tree" / "locked").mkdir(parents=True)
    (tmp_path / "tree" / "locked" / "file").touch()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "tree" / "locked").chmod(0)
    trees.remove(str(tmp_path / "tree"))
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (tmp_path / "outside" / "file").exists()


def test_two_who_remove_the_same_do_not_leave_it_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    (top / "deep").mkdir(parents=True)
    for directory in (top, top / "deep"):
        for number in range(3):
            (directory / str(number)).touch()
    unlink = os.unlink

    def late(path: str) -> None:
        unlink(path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", late)
    trees.remove(str(top))
    assert not top.exists()
