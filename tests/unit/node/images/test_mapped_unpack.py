"""Layers that another process unpacks, here without a user namespace of its own."""

import io
import tarfile
from pathlib import Path

import pytest

from kedge.node.images import mapped_unpack
from kedge.node.images.oci import InvalidImage
from kedge.node.images.streams import ForwardReader
from kedge.node.images.unpack import ImageLimits
from kedge.supervisor.files import mapped

LIMITS = ImageLimits()
REFUSED = mapped_unpack._START.replace(
    "from kedge.node",
    "from kedge.supervisor.files import mapped; mapped.enter = bool; from kedge.node",
)
ADMITTED = REFUSED.replace("= bool", "= lambda: True")


@pytest.fixture(params=[ADMITTED, REFUSED], ids=["admitted", "refused"])
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "is_available", lambda: True)
    monkeypatch.setattr(mapped_unpack, "_START", request.param)


def layer(names: list[str], size: int = 3) -> bytes:
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w") as made:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size = size
                made.addfile(entry, io.BytesIO(bytes(size)))
        return out.getvalue()


def unpacked(content: bytes, into: Path, limits: ImageLimits = LIMITS) -> tuple[int, str]:
    into.mkdir()
    tar = ForwardReader(io.BytesIO(content), 1 << 30)
    return mapped_unpack.unpack_with_owners(tar, into, [], limits), tar.digest()


@pytest.mark.usefixtures("worker")
def test_a_layer_is_unpacked_and_read_to_its_end(tmp_path: Path) -> None:
    content = layer(["a", "d/b"]) + bytes(3 << 20)
    size, digest = unpacked(content, tmp_path / "layer")
    assert size == 6
    assert digest == ForwardReader(io.BytesIO(content), 1 << 30).digest()
    assert (tmp_path / "layer/d/b").read_bytes() == bytes(3)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("content", "limits", "match"),
    [
        (layer(["../outside"]), LIMITS, "outside of the image"),
        (layer([f"f{n}" for n in range(20)]), ImageLimits(entries=10), "more than the 10 files"),
        (layer(["large"], 5 << 20), ImageLimits(layer_bytes=4 << 20), "more than the"),
        (b"no tar" * 1000, LIMITS, "not a tar file"),
    ],
)
def test_a_wrong_layer_is_refused(
    tmp_path: Path, content: bytes, limits: ImageLimits, match: str
) -> None:
    with pytest.raises(InvalidImage, match=match):
        unpacked(content, tmp_path / "layer", limits)


def test_a_process_that_breaks_off_is_an_error_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "is_available", lambda: True)
    monkeypatch.setattr(mapped_unpack, "_START", "print('ready', flush=True)")
    with pytest.raises(OSError, match="has failed"):
        unpacked(layer(["a"]), tmp_path / "layer")
