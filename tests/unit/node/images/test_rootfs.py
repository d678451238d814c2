"""Roots of containers: what is mounted where, and what is then seen."""

import ctypes
import os
from pathlib import Path

import pytest

from kedge.node.images import archive, rootfs
from kedge.node.images.image import HOST_IMAGE, Image
from kedge.node.images.reference import Reference
from kedge.node.images.rootfs import Overlay, ReadOnly
from kedge.node.images.store import Store
from kedge.node.images.unpack import Limits
from kedge.testing.clock import FakeClock
from kedge.testing.images import build, directory, layout_files, program, symlink, write_files

STATE = Path("/var/lib/kedge")
LAYERED = build(
    {"./": directory(0o751), "a/x": b"low", "b": b"gone", "d/old": b"gone", "bin": symlink("a")},
    {"a/x": program(b"high"), ".wh.b": b"", "d/.wh..wh..opq": b"", "d/new": b"new"},
)


def image_of(tmp_path: Path, *layers: Path) -> Image:
    return Image("sha256:1", "a:1", layers=layers or (tmp_path / "l" / "2", tmp_path / "l" / "1"))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    store = Store(tmp_path / "images", FakeClock())
    path = write_files(tmp_path / "layout", layout_files((LAYERED, [])))
    (packed,) = archive.read(archive.Directory(path), Limits())
    store.add(packed, [Reference.parse("a:1")], loaded=True)
    found = store.find(Reference.parse("a:1"))
    assert found is not None
    return found


def test_layers_are_stacked_the_uppermost_first(tmp_path: Path) -> None:
    found = rootfs.rootfs(image_of(tmp_path), tmp_path / "c1", privileged=True, hidden=[STATE])
    assert isinstance(found, Overlay)
    assert found.directory == tmp_path / "l"
    upper = tmp_path / "c1"
    assert found.options() == f"lowerdir=2:1,upperdir={upper}/upper,workdir={upper}/work"
    assert found.hidden == ()


def test_an_ordinary_user_mounts_with_attributes_of_users(tmp_path: Path) -> None:
    found = rootfs.rootfs(image_of(tmp_path), tmp_path, privileged=False)
    assert isinstance(found, Overlay)
    assert found.options().endswith(",userxattr")


def test_the_machine_is_seen_without_the_state_of_kedge(tmp_path: Path) -> None:
    found = rootfs.rootfs(HOST_IMAGE, tmp_path, privileged=True, hidden=[STATE])
    assert isinstance(found, Overlay)
    assert (found.lowers, found.hidden) == (("/",), (STATE,))
    unprivileged = rootfs.rootfs(HOST_IMAGE, tmp_path, privileged=False, hidden=[STATE])
    assert isinstance(unprivileged, ReadOnly)
    assert unprivileged.source == Path("/")
    assert "/tmp" in unprivileged.private
    assert unprivileged.hidden == (STATE,)


def test_as_many_layers_as_an_image_may_have_fit_into_one_mount(tmp_path: Path) -> None:
    stack = tuple(tmp_path / "l" / f"{number:012x}" for number in range(127))
    found = rootfs.rootfs(image_of(tmp_path, *stack), tmp_path / "c", privileged=True)
    assert isinstance(found, Overlay)
    assert len(found.options()) < 4096
    deep = Path("/") / ("d" * 3000)
    beyond = rootfs.rootfs(image_of(tmp_path, *stack), deep, privileged=True)
    assert isinstance(beyond, Overlay)
    with pytest.raises(ValueError, match="too many layers"):
        beyond.options()


def test_a_copy_shows_what_the_layers_show(tmp_path: Path, image: Image) -> None:
    target = tmp_path / "copy"
    rootfs.copy(image, target)
    assert sorted(os.listdir(target)) == ["a", "bin", "d"]
    assert os.listdir(target / "d") == ["new"]
    assert (target / "a/x").read_bytes() == b"high"
    assert (target / "a/x").stat().st_mode & 0o777 == 0o755
    assert target.stat().st_mode & 0o777 == 0o751
    assert os.readlink(target / "bin") == "a"


def mounted(found: Overlay, where: Path) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.getcwd()
    os.chdir(found.directory)
    try:
        options = found.options().encode()
        return not libc.mount(b"overlay", bytes(where), b"overlay", found.flags, options)
    finally:
        os.chdir(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("place", ["c1", "a,b:c\\d"])
def test_the_kernel_shows_what_the_layers_show(tmp_path: Path, image: Image, place: str) -> None:
    found = rootfs.rootfs(image, tmp_path / place, privileged=True)
    assert isinstance(found, Overlay)
    found.prepare()
    where = tmp_path / "mounted"
    where.mkdir()
    if not mounted(found, where):
        pytest.skip(f"overlay cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        assert sorted(os.listdir(where)) == ["a", "bin", "d"]
        assert os.listdir(where / "d") == ["new"]
        assert (where / "bin/x").read_bytes() == b"high"
        assert where.stat().st_mode & 0o777 == 0o751
        (where / "a/x").write_bytes(b"changed")
        (where / "d/new").unlink()
        assert os.listdir(where / "d") == []
    finally:
        ctypes.CDLL(None).umount2(bytes(where), 2)
    assert (image.layers[0] / "a/x").read_bytes() == b"high"
    assert (image.layers[0] / "d/new").exists()
