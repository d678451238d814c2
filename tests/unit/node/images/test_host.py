"""What the image `host` hides of a machine."""

import pwd
from pathlib import Path

import pytest

from kedge.node.images.host import HostImage, host_image


def hidden(image: HostImage) -> set[str]:
    return {each.path for each in image.hidden}


def image(*shown: str) -> HostImage:
    return host_image(own=[Path("/state")], shown=list(map(Path, shown)), is_enabled=True)


def test_credentials_homes_and_kedges_own_files_are_hidden() -> None:
    assert {"/etc/shadow", "/etc/ssh", "/root", "/home", "/state"} <= hidden(image())
    assert image().shown == ()


def test_a_listed_path_and_those_below_a_shown_one_are_no_longer_hidden() -> None:
    assert {"/etc/shadow", "/root"} & hidden(image("/etc", "/root")) == set()
    assert image("/etc", "/root").shown == ()


def test_a_path_below_a_hidden_directory_is_shown_and_the_rest_stays_hidden() -> None:
    shown = image("/home/me/project")
    assert "/home" in hidden(shown)
    assert shown.shown == ("/home/me/project",)


def test_kedges_own_files_cannot_be_shown() -> None:
    assert "/state" in hidden(image("/", "/state"))


def test_what_lies_below_kedges_own_files_cannot_be_shown() -> None:
    given = host_image(own=[Path("/root/state")], shown=[Path("/root/state/a")], is_enabled=True)
    assert given.shown == ()


def test_a_home_behind_a_link_is_hidden_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """/home hides the link only."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "me").symlink_to(tmp_path / "disk")
    me = pwd.struct_passwd(("me", "x", 1000, 1000, "", str(tmp_path / "me"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [me])
    assert str(tmp_path / "disk") in hidden(image())
