"""Loading an image that takes longer than a second shows how far it is."""

import io
from typing import BinaryIO

from kedge.cli.image_progress import counted
from kedge.cli.output.progress import ProgressLine
from kedge.node.images.archive import LayerBlob, PackedImage
from kedge.node.images.oci import ImageDocument
from kedge.node.images.reference import ImageReference
from kedge.testing.clock import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def content() -> BinaryIO:
    return io.BytesIO(b"x" * 4096)


async def test_bytes_of_layers_are_counted() -> None:
    clock, out = FakeClock(), Terminal()
    blob = LayerBlob("sha256:a", "", content)
    image = PackedImage("sha256:b", ImageDocument(), (blob, blob))
    watched = counted(image, ImageReference.parse("app:1"), ProgressLine(out, clock))
    await clock.advance(2.0)
    with watched.blobs[1].open() as file:
        assert file.read(4) == b"xxxx"
        file.seek(0)
        await clock.advance(2.0)
        assert file.read() == b"x" * 4096
    assert out.getvalue() == "\rapp:1: layer 2 of 2, 4 B\rapp:1: layer 2 of 2, 4.0 KiB"
