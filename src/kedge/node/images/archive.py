"""Images in files: OCI layouts and docker archives, as tar files or directories, and plain root
directories.

`docker save` wrote docker archives first; since version 25 it writes both forms into one tar file.
"""

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

import msgspec

from kedge.node.images import oci
from kedge.node.images.oci import (
    CONTAINERD_NAME,
    INDEXES,
    MANIFESTS,
    OCI_NAME,
    ContentDescriptor,
    ImageDocument,
    ImageIndex,
    ImageManifest,
    InvalidImage,
    SavedImage,
)
from kedge.node.images.reference import ImageReference, InvalidImageName, is_tag
from kedge.node.images.streams import (
    BROKEN,
    CHUNK,
    FileSlice,
    ForwardReader,
    SkippingReader,
    algorithm,
    is_packed,
    members,
    unpacker,
)
from kedge.node.images.unpack import ImageLimits

if TYPE_CHECKING:
    import tarfile

_MOST_MEMBERS: Final = 100_000
_MOST_LINKS: Final = 8
_DEEPEST: Final = 4
"""Maximum nesting of indexes."""
_ROOT_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LayerBlob(msgspec.Struct, frozen=True):
    """A packed layer."""

    diff_id: str
    """The digest of its uncompressed tar file."""
    digest: str
    """The digest of the packed bytes; empty if unknown."""
    open: Callable[[], BinaryIO]


class PackedImage(msgspec.Struct, frozen=True):
    """An image with packed layers."""

    id: str
    """The digest of its configuration."""
    document: ImageDocument
    blobs: tuple[LayerBlob, ...]
    """The layers, lowest first."""
    names: tuple[ImageReference, ...] = ()
    digests: tuple[str, ...] = ()
    """The digests by which registries know it: that of its manifest, and of the indexes above."""


class ArchiveFiles(Protocol):
    """The files of an archive."""

    def holds(self, name: str) -> bool: ...

    def open(self, name: str) -> BinaryIO:
        """Open a file. Raises InvalidImage if it does not exist."""
        ...


@contextmanager
def open_images(path: Path, scratch: Path, limits: ImageLimits) -> Iterator[list[PackedImage]]:
    """Yield the images in a file or directory; `scratch` is for temporary files."""
    with contextlib.ExitStack() as stack:
        if path.is_dir():
            files: ArchiveFiles = DirectoryArchive(path)
            if not _is_archive(files):
                yield [stack.enter_context(_root(path, scratch))]
                return
        else:
            files = stack.enter_context(_tar(path, scratch, limits))
        yield read(files, limits)


def read(files: ArchiveFiles, limits: ImageLimits) -> list[PackedImage]:
    """Return the images of an archive of any form."""
    if files.holds("index.json"):
        return _read_layout(files, limits)
    if files.holds("manifest.json"):
        return _read_saved(files, limits)
    if files.holds("repositories"):
        raise InvalidImage("it was saved by docker before 1.10: save it again with a newer version")
    raise InvalidImage(
        "it is not an archive of images: it has neither index.json, as OCI layouts have, nor"
        " manifest.json, as 'docker save' writes"
    )


def _is_archive(files: ArchiveFiles) -> bool:
    return files.holds("oci-layout") or files.holds("manifest.json")


# OCI layouts.


def _read_layout(files: ArchiveFiles, limits: ImageLimits) -> list[PackedImage]:
    listed = oci.decode(_small(files, "index.json", limits), ImageIndex, "index.json").manifests
    saved = _saved_names(files, limits)
    images: dict[str, PackedImage] = {}
    for each in listed or ():
        if (each.annotations or {}).get("vnd.docker.reference.type"):
            continue
        digests, manifest = _manifest(files, each, limits)
        image = _laid_out(files, manifest, limits)
        names = (*_annotated(each), *saved.get(image.id, ()))
        images[image.id] = _joined(images.get(image.id), image, names, digests)
    if not images:
        raise InvalidImage("it holds no images")
    return list(images.values())


def _manifest(
    files: ArchiveFiles, listed: ContentDescriptor, limits: ImageLimits
) -> tuple[tuple[str, ...], ImageManifest]:
    """Return the manifest for this machine that a descriptor leads to, and the digests on the
    way."""
    digests: list[str] = []
    for _ in range(_DEEPEST):
        content = _blob(files, listed, limits)
        digests.append(listed.digest)
        kind = listed.media_type or oci.decode(content, ImageIndex, listed.digest).media_type
        if kind in MANIFESTS:
            return tuple(digests), oci.decode(content, ImageManifest, listed.digest)
        if kind not in INDEXES:
            raise InvalidImage(f'{listed.digest} is of the type "{kind}", which is no image\'s')
        inner = oci.decode(content, ImageIndex, listed.digest).manifests or ()
        listed = oci.pick(inner, oci.this_machine())
    raise InvalidImage("its indexes lead one to the other without end")


def _laid_out(files: ArchiveFiles, manifest: ImageManifest, limits: ImageLimits) -> PackedImage:
    document = oci.decode(_blob(files, manifest.config, limits), ImageDocument, "its configuration")
    layers = manifest.layers or ()
    diff_ids = oci.check_layers(document, len(layers))
    blobs = tuple(
        LayerBlob(diff_id, layer.digest, _opener(files, _blob_path(layer.digest)))
        for diff_id, layer in zip(diff_ids, layers, strict=True)
    )
    return PackedImage(manifest.config.digest, document, blobs)


def _blob(files: ArchiveFiles, described: ContentDescriptor, limits: ImageLimits) -> bytes:
    content = _small(files, _blob_path(described.digest), limits)
    check(content, described.digest)
    return content


def _blob_path(digest: str) -> str:
    value = digest.partition(":")[2]
    if not value.isalnum():
        raise InvalidImage(f'"{digest}" is not a digest')
    return f"blobs/{algorithm(digest)}/{value}"


def check(content: bytes, digest: str) -> None:
    """Check that the content matches its digest."""
    name = algorithm(digest)
    found = f"{name}:{hashlib.new(name, content).hexdigest()}"
    if found != digest:
        raise InvalidImage(f"its content is damaged: {digest} was expected, {found} was found")


def _annotated(listed: ContentDescriptor) -> Iterator[ImageReference]:
    """Return the names of an image in an index. An annotation that is only a tag is no name."""
    said = listed.annotations or {}
    name = said.get(CONTAINERD_NAME) or said.get(OCI_NAME) or ""
    if name and not (CONTAINERD_NAME not in said and is_tag(name)):
        yield _reference(name)


# Docker archives.


def _read_saved(files: ArchiveFiles, limits: ImageLimits) -> list[PackedImage]:
    images: dict[str, PackedImage] = {}
    for saved in _saved(files, limits):
        content = _small(files, saved.config, limits)
        document = oci.decode(content, ImageDocument, saved.config)
        layers = saved.layers or ()
        diff_ids = oci.check_layers(document, len(layers))
        blobs = tuple(
            LayerBlob(diff_id, "", _opener(files, layer))
            for diff_id, layer in zip(diff_ids, layers, strict=True)
        )
        image = PackedImage(f"sha256:{hashlib.sha256(content).hexdigest()}", document, blobs)
        named = [_reference(name) for name in saved.repo_tags or ()]
        images[image.id] = _joined(images.get(image.id), image, named, ())
    if not images:
        raise InvalidImage("it holds no images")
    return list(images.values())


def _saved(files: ArchiveFiles, limits: ImageLimits) -> list[SavedImage]:
    content = _small(files, "manifest.json", limits)
    return oci.decode(content, list[SavedImage], "manifest.json")


def _saved_names(
    files: ArchiveFiles, limits: ImageLimits
) -> Mapping[str, Sequence[ImageReference]]:
    """Return names by configuration, for an OCI layout that is also a docker archive."""
    if not files.holds("manifest.json"):
        return {}
    names: dict[str, list[ImageReference]] = {}
    for saved in _saved(files, limits):
        digest = saved.config.removeprefix("blobs/").replace("/", ":")
        names.setdefault(digest, []).extend(map(_reference, saved.repo_tags or ()))
    return names


def _joined(
    before: PackedImage | None,
    image: PackedImage,
    names: Sequence[ImageReference],
    digests: Sequence[str],
) -> PackedImage:
    """Return one image that an archive lists several times, with all its names."""
    known = before or image
    return PackedImage(
        image.id,
        image.document,
        image.blobs,
        tuple(dict.fromkeys((*known.names, *names))),
        tuple(dict.fromkeys((*known.digests, *digests))),
    )


def _reference(name: str) -> ImageReference:
    try:
        return ImageReference.parse(name)
    except InvalidImageName as error:
        raise InvalidImage(f'it gives an image the name "{name}": {error}') from error


# Access to files.


def _opener(files: ArchiveFiles, name: str) -> Callable[[], BinaryIO]:
    return lambda: files.open(name)


def _small(files: ArchiveFiles, name: str, limits: ImageLimits) -> bytes:
    with files.open(name) as file:
        content = file.read(limits.document_bytes + 1)
    if len(content) > limits.document_bytes:
        raise InvalidImage(f"{name} is larger than the {limits.document_bytes} bytes allowed")
    return content


class DirectoryArchive:
    """An archive in a directory."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def holds(self, name: str) -> bool:
        return (self._path / name).is_file()

    def open(self, name: str) -> BinaryIO:
        path = (self._path / name).resolve()
        if not path.is_relative_to(self._path) or not path.is_file():
            raise InvalidImage(f"it has no file {name}")
        return open(path, "rb")


class TarArchive:
    """An archive in an uncompressed tar file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        import tarfile

        try:
            self._survey()
        except (tarfile.TarError, *BROKEN) as error:
            raise InvalidImage(f"it is not a tar file: {error}") from error

    def _survey(self) -> None:
        for _, member in members(SkippingReader(self._file)):
            name = os.path.normpath(member.name).lstrip("/")
            if member.isreg() and not member.issparse():
                self._places[name] = member.offset_data, member.size
            elif member.islnk():
                self._links[name] = os.path.normpath(member.linkname).lstrip("/")
            elif member.issym():
                beside = os.path.join(os.path.dirname(name), member.linkname)
                self._links[name] = os.path.normpath(beside)
            if len(self._places) + len(self._links) > _MOST_MEMBERS:
                raise InvalidImage(f"it holds more than {_MOST_MEMBERS} files")

    def holds(self, name: str) -> bool:
        return name in self._places

    def open(self, name: str) -> BinaryIO:
        at = os.path.normpath(name)
        for _ in range(_MOST_LINKS):
            if at in self._places:
                start, size = self._places[at]
                return io.BufferedReader(FileSlice(self._file.fileno(), start, size), CHUNK)
            if at not in self._links:
                break
            # Old versions of `docker save` wrote each layer once and linked to it.
            at = self._links[at]
        raise InvalidImage(f"it has no file {name}")


@contextmanager
def _tar(path: Path, scratch: Path, limits: ImageLimits) -> Iterator[TarArchive]:
    with open(path, "rb") as file:
        if not is_packed(file):
            yield TarArchive(file)
            return
        import tempfile

        with tempfile.TemporaryFile(dir=scratch) as plain:
            _expand(file, plain, limits)
            yield TarArchive(plain)


def _expand(packed: BinaryIO, plain: BinaryIO, limits: ImageLimits) -> None:
    unpacked = ForwardReader(unpacker(packed)(packed), limits.layer_bytes)
    try:
        while piece := unpacked.read(CHUNK):
            plain.write(piece)
    except OSError as error:
        if error.errno is not None:
            raise
        raise InvalidImage(f"it cannot be decompressed: {error}") from error
    except BROKEN as error:
        raise InvalidImage(f"it cannot be decompressed: {error}") from error
    plain.flush()
    plain.seek(0)


# Plain root directories.


@contextmanager
def _root(path: Path, scratch: Path) -> Iterator[PackedImage]:
    """Yield a root directory as an image with one layer."""
    if not any(path.iterdir()):
        raise InvalidImage("it is an empty directory")
    import tempfile

    with tempfile.TemporaryFile(dir=scratch) as file:
        _pack(path, file)
        file.seek(0)
        diff_id = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        content = _root_document(diff_id)
        size = os.fstat(file.fileno()).st_size
        blob = LayerBlob(
            diff_id, "", lambda: io.BufferedReader(FileSlice(file.fileno(), 0, size), CHUNK)
        )
        id_ = f"sha256:{hashlib.sha256(content).hexdigest()}"
        yield PackedImage(id_, msgspec.json.decode(content, type=ImageDocument), (blob,))


def _pack(path: Path, file: BinaryIO) -> None:
    """Write a tar file; the same directory always gives the same bytes."""
    import tarfile

    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(path, ".", recursive=False)
        _pack_below(archive, path, "")


def _pack_below(archive: "tarfile.TarFile", directory: Path, name: str) -> None:
    for entry in sorted(directory.iterdir()):
        if entry.is_socket():
            continue
        inside = f"{name}{entry.name}"
        archive.add(entry, inside, recursive=False)
        if entry.is_dir() and not entry.is_symlink():
            _pack_below(archive, entry, f"{inside}/")


def _root_document(diff_id: str) -> bytes:
    machine = oci.this_machine()
    said = {
        "architecture": machine.architecture,
        "os": machine.os,
        "config": {"Env": [_ROOT_PATH], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    }
    return msgspec.json.encode(said)


def copy_to_file(source: BinaryIO, scratch: Path, limits: ImageLimits) -> Path:
    """Copy a stream that can be read only once, such as standard input, to a file."""
    import tempfile

    descriptor, name = tempfile.mkstemp(dir=scratch)
    with open(descriptor, "wb") as file:
        reader = ForwardReader(source, limits.layer_bytes)
        while piece := reader.read(CHUNK):
            file.write(piece)
    return Path(name)
