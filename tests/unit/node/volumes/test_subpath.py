"""Parts of volumes: what a container may name, and what it cannot trick the node into."""

import os
import stat
from pathlib import Path

import pytest

from kedge.api.core_v1.container import VolumeMount
from kedge.node.parts import ConfigFailure
from kedge.node.volumes import mounts, subpath
from kedge.node.volumes.subpath import Outside


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    place = tmp_path / "volume"
    place.mkdir()
    place.chmod(0o2770)
    return place


def test_expressions_are_expanded() -> None:
    mount = VolumeMount(subPathExpr="logs/$(POD)")
    assert subpath.wanted(mount, {"POD": "web-1"}) == "logs/web-1"
    assert subpath.wanted(VolumeMount(subPath="$(POD)"), {"POD": "x"}) == "$(POD)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "missing value for POD"),
        ("/tmp", "error SubPath `/tmp` must not be an absolute path"),
        ("a/../b", "unable to provision SubPath `a/../b`: must not contain '..'"),
        ("..", "unable to provision SubPath `..`: must not contain '..'"),
    ],
)
def test_expressions_that_lead_elsewhere_are_refused(value: str, text: str) -> None:
    with pytest.raises(ConfigFailure) as failure:
        subpath.wanted(VolumeMount(subPathExpr="$(POD)"), {"POD": value})
    assert str(failure.value) == text


def test_what_is_missing_gets_the_rights_of_the_volume(volume: Path) -> None:
    previous = os.umask(0o077)
    try:
        subpath.make(volume, "a/b/c")
    finally:
        os.umask(previous)
    for part in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((volume / part).stat().st_mode) == 0o2770


def test_directories_are_made_behind_a_link_that_stays_inside(volume: Path) -> None:
    (volume / "real").mkdir()
    (volume / "link").symlink_to("real")
    subpath.make(volume, "link/new")
    assert (volume / "real" / "new").is_dir()
    assert subpath.find(volume, "link/new") == (volume / "real" / "new").resolve()


@pytest.mark.parametrize("part", ["out", "out/below", "up/new"])
def test_nothing_is_made_or_found_behind_a_link_that_leads_out(part: str, volume: Path) -> None:
    outside = volume.parent / "outside"
    (outside / "below").mkdir(parents=True)
    (volume / "out").symlink_to(outside)
    (volume / "up").symlink_to("../outside")
    with pytest.raises((Outside, OSError)):
        subpath.make(volume, f"{part}/made")
    with pytest.raises((Outside, OSError)):
        subpath.find(volume, part)
    assert sorted(str(p.relative_to(outside)) for p in outside.rglob("*")) == ["below"]


def test_a_dead_link_is_no_place_to_make_something(volume: Path) -> None:
    (volume / "dead").symlink_to("../new")
    with pytest.raises(OSError, match="File exists"):
        subpath.make(volume, "dead")
    assert not (volume.parent / "new").exists()


def test_a_file_is_pinned_as_a_file_and_a_directory_as_a_directory(
    mountable: Path, volume: Path
) -> None:
    (volume / "file").write_text("content")
    (volume / "directory").mkdir()
    target = mountable / "pins" / "0"
    subpath.pin(volume, "file", target)
    assert target.read_text() == "content"
    subpath.pin(volume, "directory", target)
    (target / "new").touch()
    assert (volume / "directory" / "new").exists()
    assert mounts.below(mountable / "pins") == [str(target)]


def test_what_is_pinned_stays_when_its_name_is_given_to_a_link(
    mountable: Path, volume: Path
) -> None:
    (volume / "directory").mkdir()
    (volume / "directory" / "mine").touch()
    target = mountable / "pins" / "0"
    subpath.pin(volume, "directory", target)
    (volume / "directory").rename(volume / "moved")
    (volume / "directory").symlink_to("/etc")
    assert os.listdir(target) == ["mine"]


def test_a_link_that_comes_in_the_way_at_the_last_moment_is_noticed(
    mountable: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = mountable / "outside"
    (outside / "part").mkdir(parents=True)
    (volume / "a" / "part").mkdir(parents=True)
    found = subpath.find(volume, "a/part")
    (volume / "a").rename(volume / "was")
    (volume / "a").symlink_to(outside)
    # As if the links had been exchanged just after the path was found to be a good one.
    monkeypatch.setattr(subpath, "find", lambda *_: found)
    with pytest.raises(Outside):
        subpath.pin(volume, "a/part", mountable / "pins" / "0")
    assert mounts.below(mountable) == []
