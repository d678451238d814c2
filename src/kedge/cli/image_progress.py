"""The progress of loading an image: the bytes of its layers that were read."""

from collections.abc import Callable
from typing import Any, BinaryIO

from msgspec.structs import replace

from kedge.cli.output.printers import size
from kedge.cli.output.progress import ProgressLine
from kedge.node.images.archive import LayerBlob, PackedImage
from kedge.node.images.reference import ImageReference


def counted(image: PackedImage, name: ImageReference, line: ProgressLine) -> PackedImage:
    """Return the image, whose layers show on the line how much of them was read."""
    total = len(image.blobs)
    blobs = [
        replace(blob, open=_opener(blob, line, f"{name.familiar}: layer {number} of {total}"))
        for number, blob in enumerate(image.blobs, 1)
    ]
    return replace(image, blobs=tuple(blobs))


def _opener(blob: LayerBlob, line: ProgressLine, text: str) -> Callable[[], BinaryIO]:
    def open_counted() -> BinaryIO:
        file: Any = _CountedFile(blob.open(), lambda done: line.show(f"{text}, {size(done)}"))
        found: BinaryIO = file
        return found

    return open_counted


class _CountedFile:
    """A file that reports how many bytes of it were read."""

    def __init__(self, file: BinaryIO, report: Callable[[int], None]) -> None:
        self._file = file
        self._report = report
        self._done = 0

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(count)
        self._done += len(data)
        self._report(self._done)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_CountedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
