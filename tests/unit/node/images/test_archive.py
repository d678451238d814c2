"""Archives of images: every form in which they come, and what is not taken."""

import gzip
import importlib
import io
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kedge.node.images import archive
from kedge.node.images.archive import PackedImage
from kedge.node.images.oci import OCI_INDEX, OCI_MANIFEST, InvalidImage, this_machine
from kedge.node.images.unpack import ImageLimits
from kedge.testing.images import (
    BuiltImage,
    build,
    descriptor,
    index,
    layer,
    layout_files,
    oci_archive,
    saved_files,
    sha256,
    symlink,
    write_files,
)

IMAGE = build({"a": b"1"}, {"b": b"2"}, config={"Cmd": ["/a"], "Env": None, "User": "7"})
NAMES = ("docker.io/library/busybox:1.36", "quay.io/me/box:v2")


def loaded(path: Path, tmp_path: Path) -> list[PackedImage]:
    with archive.open_images(path, tmp_path, ImageLimits()) as images:
        return images


def content_of_layers(path: Path, tmp_path: Path) -> list[bytes]:
    with archive.open_images(path, tmp_path, ImageLimits()) as images:
        return [blob.open().read() for blob in images[0].blobs]


def shape(images: list[PackedImage]) -> list[tuple[str, list[str]]]:
    return [(image.id, [str(name) for name in image.names]) for image in images]


def written(path: Path, files: Any) -> Path:
    path.write_bytes(layer(files))
    return path


def test_an_oci_layout_has_its_names_from_annotations(tmp_path: Path) -> None:
    path = oci_archive(tmp_path / "image.tar", IMAGE, *NAMES)
    images = loaded(path, tmp_path)
    assert shape(images) == [(IMAGE.id, list(NAMES))]
    assert images[0].digests == (IMAGE.digest,)


def test_an_oci_layout_may_be_a_directory(tmp_path: Path) -> None:
    path = write_files(tmp_path / "layout", layout_files((IMAGE, ["busybox:1"])))
    assert shape(loaded(path, tmp_path)) == [(IMAGE.id, ["docker.io/library/busybox:1"])]


def test_a_mere_tag_names_nothing(tmp_path: Path) -> None:
    path = oci_archive(tmp_path / "image.tar", IMAGE, "latest")
    assert shape(loaded(path, tmp_path)) == [(IMAGE.id, [])]


def test_a_docker_archive_has_its_names_from_its_list(tmp_path: Path) -> None:
    other = build({"c": b"3"})
    files = saved_files((IMAGE, ["busybox:1", "box:latest"]), (other, []))
    path = written(tmp_path / "saved.tar", files)
    assert shape(loaded(path, tmp_path)) == [
        (IMAGE.id, ["docker.io/library/busybox:1", "docker.io/library/box:latest"]),
        (other.id, []),
    ]
    assert content_of_layers(path, tmp_path) == [*IMAGE.tars]


def test_layers_of_old_docker_archives_may_be_links(tmp_path: Path) -> None:
    files = saved_files((IMAGE, ["busybox:1"]))
    listed = msgspec.json.decode(files["manifest.json"])  # type: ignore[arg-type]
    first = listed[0]["Layers"][0]
    listed[0]["Layers"][0] = "other/layer.tar"
    files |= {
        "other/layer.tar": symlink(f"../{first}"),
        "manifest.json": msgspec.json.encode(listed),
    }
    path = written(tmp_path / "saved.tar", files)
    assert content_of_layers(path, tmp_path) == [*IMAGE.tars]


def test_newer_docker_archives_are_both_forms_in_one(tmp_path: Path) -> None:
    blob = f"blobs/{IMAGE.id.replace(':', '/')}"
    listed = [{"Config": blob, "RepoTags": ["busybox:1"], "Layers": ["x", "y"]}]
    files = layout_files((IMAGE, ["1"])) | {"manifest.json": msgspec.json.encode(listed)}
    images = loaded(written(tmp_path / "saved.tar", files), tmp_path)
    assert shape(images) == [(IMAGE.id, ["docker.io/library/busybox:1"])]
    assert images[0].digests == (IMAGE.digest,)


def test_archives_may_be_compressed_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "image.tar.gz"
    path.write_bytes(gzip.compress(layer(layout_files((IMAGE, NAMES)))))
    assert shape(loaded(path, tmp_path)) == [(IMAGE.id, list(NAMES))]


def test_zstd_is_read_where_a_library_is_installed(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard", reason="the package zstandard is not installed")
    path = tmp_path / "image.tar.zst"
    path.write_bytes(zstandard.compress(layer(layout_files((IMAGE, NAMES)))))
    assert shape(loaded(path, tmp_path)) == [(IMAGE.id, list(NAMES))]


def test_zstd_without_a_library_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    path = tmp_path / "image.tar.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    with pytest.raises(InvalidImage, match="pip install zstandard"):
        loaded(path, tmp_path)


def platforms(*offered: tuple[BuiltImage, str]) -> bytes:
    def described(image: BuiltImage, platform: str) -> dict[str, Any]:
        system, architecture, *variant = platform.split("/")
        said = {"os": system, "architecture": architecture, "variant": "".join(variant)}
        return descriptor(image.manifest, OCI_MANIFEST, platform=said)

    return index(*(described(image, platform) for image, platform in offered))


def layout_of(tmp_path: Path, inner: bytes, *images: BuiltImage) -> Path:
    files = layout_files(*((image, []) for image in images))
    files[f"blobs/{sha256(inner).replace(':', '/')}"] = inner
    files["index.json"] = index(
        descriptor(inner, OCI_INDEX, annotations={"io.containerd.image.name": "a:1"})
    )
    return written(tmp_path / "image.tar", files)


def test_of_several_platforms_this_machines_is_taken(tmp_path: Path) -> None:
    other, statement = build({"x": b"other"}), build({"x": b"statement"})
    inner = platforms(
        (statement, "unknown/unknown"), (other, "linux/other"), (IMAGE, str(this_machine()))
    )
    images = loaded(layout_of(tmp_path, inner, IMAGE, other, statement), tmp_path)
    assert shape(images) == [(IMAGE.id, ["docker.io/library/a:1"])]
    assert images[0].digests == (sha256(inner), IMAGE.digest)


def test_an_image_for_other_platforms_says_for_which(tmp_path: Path) -> None:
    inner = platforms((IMAGE, "linux/other"), (IMAGE, "windows/amd64"))
    with pytest.raises(InvalidImage, match="only for linux/other, windows/amd64"):
        loaded(layout_of(tmp_path, inner, IMAGE), tmp_path)


def damaged(files: dict[str, bytes], digest: str) -> dict[str, bytes]:
    return files | {f"blobs/{digest.replace(':', '/')}": b"{}"}


def without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {key: value for key, value in files.items() if key != name}


LAYOUT = layout_files((IMAGE, NAMES))


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (damaged(LAYOUT, IMAGE.digest), "its content is damaged"),
        (damaged(LAYOUT, IMAGE.id), "its content is damaged"),
        (without(LAYOUT, f"blobs/{IMAGE.id.replace(':', '/')}"), "it has no file blobs/sha256/"),
        ({"index.json": b"{"}, "index.json cannot be read"),
        ({"index.json": b"{}"}, "it holds no images"),
        ({"repositories": b"{}"}, "docker before 1.10"),
        ({"etc/passwd": b""}, "it is not an archive of images"),
        ({"manifest.json": b'[{"Config":"../../etc/passwd"}]'}, "it has no file"),
        ({"manifest.json": b"[" * 100000}, "manifest.json cannot be read"),
        ({"manifest.json": bytes(9 << 20)}, "larger than"),
    ],
)
def test_what_cannot_be_an_image_is_refused(
    tmp_path: Path, files: dict[str, bytes], complaint: str
) -> None:
    with pytest.raises(InvalidImage, match=complaint):
        loaded(written(tmp_path / "image.tar", files), tmp_path)


def test_a_directory_is_not_read_beyond_its_border(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    listed = b'[{"Config":"../secret","Layers":["../secret"]}]'
    path = write_files(tmp_path / "saved", {"manifest.json": listed})
    with pytest.raises(InvalidImage, match="it has no file"):
        loaded(path, tmp_path)
    os.symlink("../secret", path / "inside")
    (path / "manifest.json").write_bytes(b'[{"Config":"inside"}]')
    with pytest.raises(InvalidImage, match="it has no file"):
        loaded(path, tmp_path)


def test_a_digest_may_not_be_a_path(tmp_path: Path) -> None:
    crooked = {"mediaType": OCI_MANIFEST, "digest": "sha256:../../secret", "size": 1}
    with pytest.raises(InvalidImage, match="not a digest"):
        loaded(written(tmp_path / "image.tar", {"index.json": index(crooked)}), tmp_path)


def test_indexes_that_lead_to_themselves_come_to_an_end(tmp_path: Path) -> None:
    inner = index()
    for _ in range(6):
        inner = index(descriptor(inner, OCI_INDEX))
        write_files(tmp_path / "l", {f"blobs/{sha256(inner).replace(':', '/')}": inner})
    top = index(descriptor(inner, OCI_INDEX))
    write_files(tmp_path / "l", {"oci-layout": b"{}", "index.json": top})
    with pytest.raises(InvalidImage, match="without end"):
        loaded(tmp_path / "l", tmp_path)


def test_an_archive_that_unpacks_beyond_its_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(bytes(5 << 20)))
    with (
        pytest.raises(InvalidImage, match="larger than the 1048576 bytes"),
        archive.open_images(path, tmp_path, ImageLimits(layer_bytes=1 << 20)),
    ):
        pass


def test_a_broken_compressed_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.tar.gz"
    path.write_bytes(gzip.compress(os.urandom(10000))[:500])
    with pytest.raises(InvalidImage, match="cannot be decompressed"):
        loaded(path, tmp_path)


def test_layers_and_configuration_must_agree(tmp_path: Path) -> None:
    listed = msgspec.json.decode(saved_files((IMAGE, []))["manifest.json"])  # type: ignore[arg-type]
    listed[0]["Layers"].pop()
    files = saved_files((IMAGE, [])) | {"manifest.json": msgspec.json.encode(listed)}
    with pytest.raises(InvalidImage, match="knows 2 layers, but it has 1"):
        loaded(written(tmp_path / "saved.tar", files), tmp_path)


def test_a_plain_directory_is_an_image_and_always_the_same(tmp_path: Path) -> None:
    root = write_files(tmp_path / "root", {"bin/sh": b"#!", "etc/hosts": b"x"})
    (root / "lib").symlink_to("usr/lib")
    with archive.open_images(root, tmp_path, ImageLimits()) as (image,):
        assert image.document.config is not None
        assert image.document.config.cmd == ["/bin/sh"]
        assert len(image.blobs[0].open().read()) > 0
    assert shape(loaded(root, tmp_path)) == [(image.id, [])]


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidImage, match="empty"):
        loaded(tmp_path / "empty", tmp_path)


def test_standard_input_is_kept_so_that_it_can_be_read_twice(tmp_path: Path) -> None:
    source = io.BytesIO(layer(layout_files((IMAGE, NAMES))))
    path = archive.copy_to_file(source, tmp_path, ImageLimits())
    assert shape(loaded(path, tmp_path)) == [(IMAGE.id, list(NAMES))]
