"""Images: an archive is unpacked inside of its own directory, or refused."""

import contextlib
import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kedge.node.images import archive
from kedge.node.images.oci import InvalidImage
from kedge.node.images.streams import ForwardReader
from kedge.node.images.unpack import ImageLimits, unpack
from kedge.testing.images import build, layout_files

LIMITS = ImageLimits(layer_bytes=1 << 20)
NAMES = st.lists(
    st.sampled_from(["a", "b", "..", ".", "", "etc", ".wh.a", ".wh..wh..opq", "link", "x" * 200]),
    min_size=1,
    max_size=4,
).map("/".join)
KINDS = st.sampled_from(
    [
        *(tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE),
        *(tarfile.CHRTYPE, tarfile.BLKTYPE, b"Z", tarfile.GNUTYPE_SPARSE),
    ]
)


class Member(NamedTuple):
    """A file of a layer, with names and links that lead everywhere."""

    name: str
    kind: bytes
    target: str
    mode: int
    owner: int
    time: int
    content: bytes


MEMBERS = st.builds(
    Member,
    NAMES,
    KINDS,
    NAMES | st.just("/proc/self/root"),
    st.integers(0, 0o7777),
    st.integers(0, 70_000),
    st.sampled_from([0, 2**33 - 1, 1]),
    st.binary(max_size=16),
)
DAMAGE = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=3)
LAYERS = st.tuples(st.lists(MEMBERS, max_size=8), DAMAGE)


def packed(members: list[Member], damage: list[tuple[int, int]]) -> bytes:
    """A tar file of the members, with a few bytes changed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.linkname, entry.mode = member.kind, member.target, member.mode
            entry.uid, entry.mtime = member.owner, member.time
            entry.size = len(member.content) if member.kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(member.content))
    data = bytearray(out.getvalue())
    for at, value in damage:
        data[at % len(data)] = value
    return bytes(data)


@given(st.lists(LAYERS, min_size=1, max_size=2))
def test_no_layer_writes_outside_of_its_directory(
    given_layers: list[tuple[list[Member], list[tuple[int, int]]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "canary").write_text("untouched")
        below: list[Path] = []
        for number, layer in enumerate(given_layers):
            into = top / str(number) / "fs"
            into.mkdir(parents=True)
            with contextlib.suppress(InvalidImage):
                tar = ForwardReader(io.BytesIO(packed(*layer)), 1 << 20, "sha256")
                unpack(tar, into, below, LIMITS)
            below.insert(0, into)
        outside = {path for path in os.listdir(top) if not path.isdigit()}
        assert outside == {"canary"}
        assert (top / "canary").read_text() == "untouched"
        _free(top)


def _free(top: Path) -> None:
    """Layers may hold directories that their owner may not enter."""
    for directory, _, _ in os.walk(top):
        os.chmod(directory, 0o700)


GOOD = layout_files((build({"a": b"1"}), ["x:1"]))


@given(st.data())
def test_a_damaged_archive_is_refused(data: st.DataObject) -> None:
    files = {name: bytearray(content) for name, content in GOOD.items()}
    for _ in range(data.draw(st.integers(1, 3))):
        content = files[data.draw(st.sampled_from(sorted(files)))]
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as name:
        for path, content in files.items():
            (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(name) / path).write_bytes(content)
        with contextlib.suppress(InvalidImage):
            archive.read(archive.DirectoryArchive(Path(name)), LIMITS)
