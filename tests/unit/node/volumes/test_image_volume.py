"""image volumes: layers of an image, read-only."""

import errno
from pathlib import Path

import pytest

from kedge.api.core_v1.volume.volume import ImageVolumeSource
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.volumes import image_volume


def layer(directory: Path, name: str, **files: str) -> Path:
    made = directory / name
    made.mkdir()
    for file, content in files.items():
        (made / file).write_text(content)
    return made


@pytest.mark.parametrize(
    ("reference", "policy", "expected"),
    [
        ("a", "", "Always"),
        ("a:latest", "", "Always"),
        ("registry:5000/a", "", "Always"),
        ("a:1", "", "IfNotPresent"),
        ("a@sha256:0", "", "IfNotPresent"),
        ("a", "Never", "Never"),
    ],
)
def test_the_pull_policy_has_the_default_of_containers(
    reference: str, policy: str, expected: str
) -> None:
    source = ImageVolumeSource(reference=reference, pullPolicy=policy)
    assert image_volume.pull_policy(source) == expected


def test_upper_layers_cover_lower_ones(mountable: Path) -> None:
    lower = layer(mountable, "a:b,c", one="1", two="old")
    upper = layer(mountable, "upper", two="new")
    for _ in range(2):
        place = image_volume.mount(mountable / "v", [upper, lower], may_mount=True)
    assert {path.name: path.read_text() for path in place.iterdir()} == {"one": "1", "two": "new"}
    with pytest.raises(OSError, match="Read-only") as failure:
        (place / "one").write_text("x")
    assert failure.value.errno == errno.EROFS


def test_one_layer_is_read_only_too(mountable: Path) -> None:
    place = image_volume.mount(mountable / "v", [layer(mountable, "only", one="1")], may_mount=True)
    assert (place / "one").read_text() == "1"
    with pytest.raises(OSError, match="Read-only"):
        (place / "two").write_text("x")


def test_without_the_right_to_mount_one_layer_is_shown_as_it_is(tmp_path: Path) -> None:
    only = layer(tmp_path, "only", one="1")
    assert image_volume.mount(tmp_path / "v", [only], may_mount=False) == only
    with pytest.raises(VolumeFailure, match="several layers"):
        image_volume.mount(tmp_path / "v", [only, only], may_mount=False)


def test_an_image_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VolumeFailure, match="no files"):
        image_volume.mount(tmp_path / "v", [], may_mount=True)
