"""Parts of volumes: what a container may name, and what it cannot trick the node into."""

import os
import stat
from pathlib import Path

import pytest

from kedge.api.core_v1.pod.container import VolumeMount
from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.volumes import subpath


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    place = tmp_path / "volume"
    place.mkdir()
    place.chmod(0o2770)
    return place


def test_expressions_are_expanded() -> None:
    mount = VolumeMount(subPathExpr="logs/$(POD)")
    assert subpath.subpath_of(mount, {"POD": "web-1"}) == "logs/web-1"
    assert subpath.subpath_of(VolumeMount(subPath="$(POD)"), {"POD": "x"}) == "$(POD)"


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
        subpath.subpath_of(VolumeMount(subPathExpr="$(POD)"), {"POD": value})
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
    assert subpath.exists(volume, "link/new")
    assert not subpath.exists(volume, "link/other")


@pytest.mark.parametrize("part", ["out", "out/below", "up/new"])
def test_nothing_is_made_or_found_behind_a_link_that_leads_out(part: str, volume: Path) -> None:
    outside = volume.parent / "outside"
    (outside / "below").mkdir(parents=True)
    (volume / "out").symlink_to(outside)
    (volume / "up").symlink_to("../outside")
    with pytest.raises(OSError, match="Invalid cross-device link"):
        subpath.make(volume, f"{part}/made")
    with pytest.raises(OSError, match="Invalid cross-device link"):
        subpath.exists(volume, part)
    assert sorted(str(p.relative_to(outside)) for p in outside.rglob("*")) == ["below"]


def test_a_dead_link_is_no_place_to_make_something(volume: Path) -> None:
    (volume / "dead").symlink_to("../new")
    with pytest.raises(OSError, match="Invalid cross-device link"):
        subpath.make(volume, "dead")
    (volume / "lost").symlink_to("nowhere")
    with pytest.raises(OSError, match="File exists"):
        subpath.make(volume, "lost")
    assert not (volume.parent / "new").exists()
