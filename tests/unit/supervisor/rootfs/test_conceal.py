"""Emptying parts of a file system in an overlay's upper directory."""

import os
import stat
from pathlib import Path

import pytest

from kedge.supervisor.rootfs import conceal


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    lower = tmp_path / "lower"
    (lower / "home" / "me").mkdir(parents=True)
    (lower / "home" / "me" / "key").write_text("secret")
    (lower / "etc").mkdir()
    (lower / "etc" / "shadow").write_text("hash")
    (lower / "etc" / "shadow").chmod(0o640)
    (tmp_path / "upper").mkdir()
    return lower


def concealed(lower: Path, *paths: str) -> Path:
    upper = lower.parent / "upper"
    inside = [f"{lower}/{path}" for path in paths]
    conceal.conceal(str(lower), str(upper), inside, conceal.USER)
    return upper


def test_a_directory_becomes_empty_and_opaque(lower: Path) -> None:
    (lower / "home").chmod(0o751)
    upper = concealed(lower, "home")
    assert list((upper / "home").iterdir()) == []
    assert os.getxattr(upper / "home", conceal.USER) == b"y"
    assert stat.S_IMODE((upper / "home").stat().st_mode) == 0o751


def test_directories_above_are_not_opaque(lower: Path) -> None:
    upper = concealed(lower, "home/me")
    assert os.getxattr(upper / "home" / "me", conceal.USER) == b"y"
    assert conceal.USER not in os.listxattr(upper / "home")


def test_a_file_becomes_empty_and_keeps_its_mode(lower: Path) -> None:
    upper = concealed(lower, "etc/shadow")
    assert (upper / "etc" / "shadow").read_bytes() == b""
    assert stat.S_IMODE((upper / "etc" / "shadow").stat().st_mode) == 0o640


def test_a_link_has_its_target_concealed(lower: Path) -> None:
    (lower / "users").symlink_to("home")
    upper = concealed(lower, "users")
    assert os.getxattr(upper / "home", conceal.USER) == b"y"
    assert not (upper / "users").exists()


def test_paths_that_are_missing_or_elsewhere_change_nothing(lower: Path) -> None:
    upper = concealed(lower, "none", "home/none/deeper", "../upper")
    assert list(upper.iterdir()) == []


def test_paths_with_the_same_parents_are_all_concealed(lower: Path) -> None:
    (lower / "etc" / "keys").mkdir()
    upper = concealed(lower, "etc/shadow", "etc/missing", "etc/keys")
    assert (upper / "etc" / "shadow").read_text() == ""
    assert os.getxattr(upper / "etc" / "keys", conceal.USER) == b"y"
    assert conceal.USER not in os.listxattr(upper / "etc")
