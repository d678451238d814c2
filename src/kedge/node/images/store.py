"""The image store: the images of this machine in one directory, shared by several processes.

A layer is unpacked in a temporary directory and renamed when it is complete; a record is written
after its layers, and a name after its record. So whatever a killed process leaves behind is not
reachable, and the next process deletes it.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from kedge.api.model import ModelMeta
from kedge.machinery import atomic
from kedge.machinery.clock import Clock
from kedge.node.images import garbage, oci
from kedge.node.images.archive import LayerBlob, PackedImage
from kedge.node.images.credentials import RegistryCredential
from kedge.node.images.garbage import DiskSpace, GarbagePlan, GarbageThresholds, ImageCandidate
from kedge.node.images.image import LocalImage
from kedge.node.images.oci import ImageConfig, InvalidImage
from kedge.node.images.pull_records import PullRecords
from kedge.node.images.reference import ImageReference, InvalidImageName
from kedge.node.images.streams import ForwardReader, algorithm, unpacker, verify
from kedge.node.images.unpack import ImageLimits, remove_tree

LAYOUT: Final = 1
_SHORTEST: Final = 12
"""Digits of a layer's digest in its short name, unless another layer has the same prefix."""


class ImageInUse(Exception):
    """Containers use the image."""


class NoSuchImage(LookupError):
    """There is no image with that name or id."""


class StoreDocument(msgspec.Struct, metaclass=ModelMeta, frozen=True, kw_only=True, rename="camel"):
    """Base of the documents in the store."""


class ImageRecord(StoreDocument):
    """An image: `images/DIGEST.json`. The file's modification time is the time of its last use."""

    id: str
    created: str = ""
    """The build time in the image."""
    architecture: str = ""
    config: ImageConfig = ImageConfig()
    layers: tuple[str, ...] = ()
    """The chain ids of its layers, lowest first: each identifies a layer with those below it."""
    size: int = 0


class ImageNameEntry(StoreDocument):
    """The target of a name."""

    id: str
    loaded: bool = False
    """Whether it was loaded by hand; no registry is asked for such a name."""
    derived: bool = False
    """Whether it is the name by digest that belongs to a tag; it does not keep an image without the
    tag."""


class ImageNamesFile(StoreDocument):
    """All names: `names.json`."""

    layout: int = LAYOUT
    names: Mapping[str, ImageNameEntry] = {}
    """By key: repository with tag or digest."""


class ImageHold(StoreDocument):
    """A use of an image: `holds/HOLDER.json`."""

    id: str
    layers: tuple[str, ...] = ()
    node: str = ""
    """The node of the container, since the nodes of one machine share a store."""
    pod_directory: str = ""
    """Of an `image` volume: the hold lasts as long as this directory, through restarts of the
    agent."""


class LayerRecord(StoreDocument):
    """A layer: `layers/DIGEST/layer.json`."""

    diff_id: str
    size: int
    short: str


class ImageListing(msgspec.Struct, frozen=True):
    """An image in a list."""

    record: ImageRecord
    names: tuple[str, ...]
    digests: tuple[str, ...]
    """Names by digest that belong to other names."""
    holders: tuple[str, ...]
    last_used: float


class ImageStore:
    """The images in a directory, which is created if it does not exist."""

    def __init__(self, directory: Path, clock: Clock, limits: ImageLimits | None = None) -> None:
        self.directory = directory
        self.limits = limits or ImageLimits()
        self._clock = clock
        self._unpacking: dict[str, threading.Lock] = {}
        self._table = threading.Lock()
        self._pulls = PullRecords(directory / "pulls")
        for name in ("images", "layers", "l", "holds", "pulls", "incoming"):
            (directory / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        # Containers of other users reach their layers through mounts, never by this path.
        os.chmod(self.directory, 0o700)

    # Lookup.

    def find(self, name: ImageReference) -> LocalImage | None:
        """Return the image with a name, or None; a digest finds it under any tag."""
        known = self._names().names.get(name.key)
        return self._image(known.id, str(name)) if known else None

    def is_loaded(self, name: ImageReference) -> bool:
        """Return whether the name was loaded by hand."""
        known = self._names().names.get(name.key)
        return known is not None and known.loaded

    def get(self, id_: str) -> LocalImage | None:
        """Return the image with an id."""
        return self._image(id_, "")

    def listed(self) -> list[ImageListing]:
        """Return all images by name; those without a name last."""
        held = self._holders()
        names = self._names().names
        given = _by_id({key: known for key, known in names.items() if not known.derived})
        derived = _by_id({key: known for key, known in names.items() if known.derived})
        found = [
            ImageListing(
                record,
                names=tuple(given.get(record.id, ())),
                digests=tuple(derived.get(record.id, ())),
                holders=tuple(sorted(held.get(record.id, ()))),
                last_used=used,
            )
            for record, used in self._records()
        ]
        return sorted(found, key=lambda each: (not each.names, each.names, each.record.id))

    def has_layer(self, chain: str) -> bool:
        return self._facts(chain) is not None

    def _image(self, id_: str, name: str) -> LocalImage | None:
        record = self._record(id_)
        if record is None:
            return None
        names = sorted(key for key, known in self._names().names.items() if known.id == id_)
        tagged = [each for each in names if "@" not in each]
        return LocalImage(
            id=id_,
            name=name or next(iter(tagged or names), id_),
            names=tuple(tagged),
            digests=tuple(each for each in names if "@" in each),
            config=record.config,
            layers=tuple(self._layer(chain) for chain in reversed(record.layers)),
            size=record.size,
        )

    def _layer(self, chain: str) -> Path:
        facts = self._facts(chain)
        if facts is None:
            raise InvalidImage(f"its layer {chain} is gone: load or pull the image again")
        return self.directory / "l" / facts.short

    # Add.

    def add(
        self, packed: PackedImage, names: Iterable[ImageReference], *, loaded: bool
    ) -> ImageRecord:
        """Unpack missing layers and give the image its names. Slow: call it in a thread."""
        with self._adding():
            while True:
                record = self._unpacked(packed)
                if self._commit(record, packed.digests, list(names), loaded=loaded):
                    return record

    def _unpacked(self, packed: PackedImage) -> ImageRecord:
        chain, below, size = "", list[Path](), 0
        chains = []
        for blob in packed.blobs:
            chain = chain_id(chain, blob.diff_id)
            facts = self._ensure_layer(chain, blob, below)
            below.insert(0, self._tree(chain))
            chains.append(chain)
            size += facts.size
        return ImageRecord(
            id=packed.id,
            created=packed.document.created or "",
            architecture=packed.document.architecture,
            config=oci.config_of(packed.document),
            layers=tuple(chains),
            size=size,
        )

    def _ensure_layer(self, chain: str, blob: LayerBlob, below: Sequence[Path]) -> LayerRecord:
        with self._table:
            lock = self._unpacking.setdefault(chain, threading.Lock())
        try:
            with lock:
                return self._facts(chain) or self._make_layer(chain, blob, below)
        finally:
            with self._table:
                self._unpacking.pop(chain, None)

    def _make_layer(self, chain: str, blob: LayerBlob, below: Sequence[Path]) -> LayerRecord:
        with self.scratch() as scratch:
            layer = scratch / "layer"
            (layer / "fs").mkdir(parents=True)
            size = self._fill(layer / "fs", blob, below)
            with self._exclusive():
                facts = LayerRecord(diff_id=blob.diff_id, size=size, short=self._short(chain))
                atomic.write(layer / "layer.json", msgspec.json.encode(facts))
                place = self._place(chain)
                # The link comes first, because a layer in its final place counts as complete.
                self._link(facts.short, place)
                if not place.exists():
                    layer.rename(place)
            return facts

    def _fill(self, into: Path, blob: LayerBlob, below: Sequence[Path]) -> int:
        """Unpack a layer and verify its digest; return its size in bytes."""
        from kedge.node.images.mapped_unpack import unpack_with_owners

        limit = self.limits.layer_bytes
        with blob.open() as file:
            decompressed = unpacker(file)
            raw = ForwardReader(file, limit, algorithm(blob.digest)) if blob.digest else None
            # Tar headers need additional space.
            tar = ForwardReader(decompressed(raw or file), 2 * limit, algorithm(blob.diff_id))
            size = unpack_with_owners(tar, into, below, self.limits)
            verify(tar, blob.diff_id)
            if raw:
                verify(raw, blob.digest)
        return size

    def _short(self, chain: str) -> str:
        value = chain.partition(":")[2]
        for length in range(_SHORTEST, len(value)):
            link = self.directory / "l" / value[:length]
            if not link.is_symlink() or os.readlink(link) == f"../layers/{value}/fs":
                return value[:length]
        return value

    def _link(self, short: str, place: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.symlink(f"../layers/{place.name}/fs", self.directory / "l" / short)

    def _commit(
        self,
        record: ImageRecord,
        digests: Iterable[str],
        names: Sequence[ImageReference],
        *,
        loaded: bool,
    ) -> bool:
        """Write the record and the names; return False if a layer was removed in the meantime."""
        with self._exclusive():
            if not all(self._facts(chain) for chain in record.layers):
                return False
            path = self._record_path(record.id)
            atomic.write(path, msgspec.json.encode(record), 0o644)
            self._touch(path)
            derived = ImageNameEntry(id=record.id, loaded=loaded, derived=True)
            given = {name.at(digest).key: derived for name in names for digest in digests}
            given |= {name.key: ImageNameEntry(id=record.id, loaded=loaded) for name in names}
            self._write_names({**self._names().names, **given})
            return True

    def name(self, id_: str, names: Iterable[ImageReference], *, loaded: bool) -> None:
        """Give an existing image further names."""
        with self._exclusive():
            if self._record(id_) is None:
                raise NoSuchImage(id_)
            known = self._names().names
            named = {**known, **{name.key: ImageNameEntry(id=id_, loaded=loaded) for name in names}}
            if named != known:
                self._write_names(named)

    # Which credentials have pulled which images.

    def allows(
        self, id_: str, name: ImageReference, credentials: Collection[RegistryCredential]
    ) -> bool:
        """Return whether one of the credentials, or a pull without credentials, has pulled the
        image."""
        return self._pulls.allows(id_, name.repository, credentials)

    def allow(self, id_: str, name: ImageReference, credential: RegistryCredential | None) -> None:
        """Record that this credential, or a pull without credentials, has pulled the image."""
        with self._exclusive():
            self._pulls.add(id_, name.repository, credential)

    # Use.

    def touch(self, id_: str) -> None:
        """Record the use of an image."""
        with contextlib.suppress(FileNotFoundError):
            self._touch(self._record_path(id_))

    def hold(self, id_: str, holder: str, node: str = "", pod_directory: str = "") -> None:
        """Record that a container or a volume uses the image, so that it is not removed before
        `release`."""
        with self._exclusive():
            record = self._record(id_)
            if record is None:
                raise NoSuchImage(id_)
            # Not by atomic.write, which waits for the disk: containers start here, and after a
            # power failure no container is left.
            path = self._hold_path(holder)
            beside = path.with_name(f".{path.name}")
            hold = ImageHold(id=id_, layers=record.layers, node=node, pod_directory=pod_directory)
            beside.write_bytes(msgspec.json.encode(hold))
            beside.replace(path)
            self._touch(self._record_path(id_))

    def release(self, holder: str) -> None:
        """Release the image of a container. Idempotent."""
        self._hold_path(holder).unlink(missing_ok=True)

    def release_others(self, node: str, holders: Collection[str]) -> None:
        """Release the images of all containers of a node but these, and of the volumes of pods
        whose directory is gone."""
        for holder, hold in self._holds():
            is_volume = bool(hold.pod_directory) and os.path.isdir(hold.pod_directory)
            if hold.node == node and holder not in holders and not is_volume:
                self.release(holder)

    def release_all(self, prefix: str) -> None:
        """Release the images of all holders whose name begins so."""
        with os.scandir(self.directory / "holds") as entries:
            found = [each.name for each in entries if each.name.startswith(prefix)]
        for name in found:
            if name.endswith(".json"):
                self.release(name.removesuffix(".json"))

    # Remove.

    def lookup(self, text: str) -> tuple[str, ImageReference | None]:
        """Return the id of an image by its name, its id or a prefix of it."""
        value = text.removeprefix("sha256:")
        if len(value) >= 4 and set(value) <= set("0123456789abcdef"):
            fitting = [
                record.id
                for record, _ in self._records()
                if record.id.partition(":")[2].startswith(value)
            ]
            if len(fitting) == 1:
                return fitting[0], None
            if len(fitting) > 1:
                raise NoSuchImage(f'"{text}" is the beginning of several ids')
        try:
            name = ImageReference.parse(text)
        except InvalidImageName as error:
            raise NoSuchImage(f'"{text}" is no name of an image: {error}') from error
        known = self._names().names.get(name.key)
        if known is None:
            raise NoSuchImage(f'there is no image "{text}"')
        return known.id, name

    def has_other_names(self, id_: str, name: ImageReference) -> bool:
        """Return whether the image has other names."""
        return any(
            known.id == id_ and not known.derived and key != name.key
            for key, known in self._names().names.items()
        )

    def unname(self, name: ImageReference) -> None:
        """Remove a name; the image stays."""
        with self._exclusive():
            left = {key: at for key, at in self._names().names.items() if key != name.key}
            self._write_names(left)

    def remove(self, id_: str, *, force: bool = False) -> int:
        """Remove an image with all its names; return the freed bytes.

        Raises ImageInUse if containers use it. With `force` it is removed nevertheless, except for
        the layers of these containers, which go with the last of them.
        """
        with self._exclusive():
            record = self._record(id_)
            if record is None:
                raise NoSuchImage(id_)
            users = self._holders().get(id_, [])
            if users and not force:
                raise ImageInUse(", ".join(sorted(users)))
            left = {key: at for key, at in self._names().names.items() if at.id != id_}
            self._write_names(left)
            self._record_path(id_).unlink(missing_ok=True)
            self._pulls.remove(id_)
            freed, trash = self._discard(set(record.layers) - self._needed())
        self._empty(trash)
        return freed

    def _needed(self) -> set[str]:
        """Return the layers of images and of running containers."""
        needed = {chain for record, _ in self._records() for chain in record.layers}
        return needed | {chain for _, hold in self._holds() for chain in hold.layers}

    def _discard(self, chains: Collection[str]) -> tuple[int, list[Path]]:
        """Rename layers for deletion, which is fast; deleting them is not."""
        freed, trash = 0, []
        for chain in chains:
            facts = self._facts(chain)
            away = self.directory / "incoming" / f"trash-{secrets.token_hex(8)}"
            with contextlib.suppress(FileNotFoundError):
                self._place(chain).rename(away)
                trash.append(away)
            if facts is not None:
                freed += facts.size
                (self.directory / "l" / facts.short).unlink(missing_ok=True)
        return freed, trash

    def _empty(self, trash: Iterable[Path]) -> None:
        for path in trash:
            remove_tree(path)

    def collect(
        self,
        thresholds: GarbageThresholds,
        keep: Collection[str] = (),
        disk: DiskSpace | None = None,
    ) -> GarbagePlan:
        """Delete images if the disk is full; return the decision. Slow."""
        self.sweep()
        given = [known for known in self._names().names.values() if not known.derived]
        loaded = {known.id for known in given if known.loaded}
        named = {known.id for known in given}
        candidates = [
            ImageCandidate(
                record.id,
                used,
                record.layers,
                is_named=record.id in named,
                is_pinned=record.id in loaded,
            )
            for record, used in self._records()
        ]
        sizes = {chain: facts.size for chain in self._chains() if (facts := self._facts(chain))}
        decided = garbage.plan(
            candidates,
            sizes,
            keep={*keep, *self._holders()},
            now=self._clock.now().timestamp(),
            thresholds=thresholds,
            disk=disk or DiskSpace.of(self.directory),
        )
        for id_ in decided.images:
            with contextlib.suppress(ImageInUse, NoSuchImage):
                self.remove(id_)
        return decided

    def sweep(self) -> None:
        """Delete what killed processes and forced removals left behind, unless an image is being
        added."""
        for path in (self.directory / "incoming").iterdir():
            with contextlib.suppress(OSError), _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB):
                remove_tree(path)
        with (
            contextlib.suppress(BlockingIOError),
            _locked(self._file("adding"), fcntl.LOCK_EX | fcntl.LOCK_NB),
        ):
            with self._exclusive():
                _, trash = self._discard(set(self._chains()) - self._needed())
                self._drop_dead_links()
            self._empty(trash)

    def _drop_dead_links(self) -> None:
        for link in (self.directory / "l").iterdir():
            if not link.exists():
                link.unlink(missing_ok=True)

    # Directories.

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a temporary directory, which is deleted at the end, or after this process is
        killed."""
        path, held = self._own_directory()
        try:
            yield path
        finally:
            remove_tree(path)
            os.close(held)

    def _own_directory(self) -> tuple[Path, int]:
        """Return a new directory, and the descriptor that locks it against deletion."""
        while True:
            path = self.directory / "incoming" / f"{os.getpid()}-{secrets.token_hex(8)}"
            path.mkdir(mode=0o700)
            # Another process may delete it before it is locked.
            with contextlib.suppress(FileNotFoundError):
                held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                fcntl.flock(held, fcntl.LOCK_EX)
                if path.exists():
                    return path, held
                os.close(held)

    def _adding(self) -> contextlib.AbstractContextManager[None]:
        return _locked(self._file("adding"), fcntl.LOCK_SH)

    def _exclusive(self) -> contextlib.AbstractContextManager[None]:
        return _locked(self._file("lock"), fcntl.LOCK_EX)

    def _file(self, name: str) -> Path:
        path = self.directory / name
        path.touch(mode=0o600)
        return path

    def _names(self) -> ImageNamesFile:
        try:
            content = (self.directory / "names.json").read_bytes()
        except FileNotFoundError:
            return ImageNamesFile()
        names = msgspec.json.decode(content, type=ImageNamesFile)
        if names.layout != LAYOUT:
            raise InvalidImage(
                f"{self.directory} was arranged by another version of kedge (layout"
                f" {names.layout}, this one knows layout {LAYOUT})"
            )
        return names

    def _write_names(self, names: Mapping[str, ImageNameEntry]) -> None:
        content = msgspec.json.encode(ImageNamesFile(names=dict(sorted(names.items()))))
        atomic.write(self.directory / "names.json", msgspec.json.format(content), 0o644)

    def _record(self, id_: str) -> ImageRecord | None:
        try:
            return msgspec.json.decode(self._record_path(id_).read_bytes(), type=ImageRecord)
        except FileNotFoundError:
            return None

    def _records(self) -> Iterator[tuple[ImageRecord, float]]:
        for path in (self.directory / "images").glob("[!.]*.json"):
            with contextlib.suppress(FileNotFoundError):
                content, used = path.read_bytes(), path.stat().st_mtime
                yield msgspec.json.decode(content, type=ImageRecord), used

    def _record_path(self, id_: str) -> Path:
        return self.directory / "images" / f"{_digits(id_)}.json"

    def _holds(self) -> Iterator[tuple[str, ImageHold]]:
        for path in (self.directory / "holds").glob("[!.]*.json"):
            with contextlib.suppress(FileNotFoundError):
                yield path.stem, msgspec.json.decode(path.read_bytes(), type=ImageHold)

    def _holders(self) -> dict[str, list[str]]:
        held: dict[str, list[str]] = {}
        for holder, hold in self._holds():
            held.setdefault(hold.id, []).append(holder)
        return held

    def _hold_path(self, holder: str) -> Path:
        if not holder or "/" in holder or holder.startswith("."):
            raise ValueError(f'"{holder}" cannot hold an image')
        return self.directory / "holds" / f"{holder}.json"

    def _chains(self) -> Iterator[str]:
        for path in (self.directory / "layers").iterdir():
            yield f"sha256:{path.name}"

    def _place(self, chain: str) -> Path:
        return self.directory / "layers" / _digits(chain)

    def _tree(self, chain: str) -> Path:
        return self._place(chain) / "fs"

    def _facts(self, chain: str) -> LayerRecord | None:
        try:
            content = (self._place(chain) / "layer.json").read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(content, type=LayerRecord)

    def _touch(self, path: Path) -> None:
        now = self._clock.now().timestamp()
        os.utime(path, (now, now))


def chain_id(below: str, diff_id: str) -> str:
    """Return the chain id: it identifies a layer together with those below it.

    The digest of the layer alone does not: the effect of its links and the modes of directories
    that it does not contain depend on the layers below.
    """
    if not below and diff_id.startswith("sha256:"):
        return diff_id
    return f"sha256:{hashlib.sha256(f'{below} {diff_id}'.encode()).hexdigest()}"


def _by_id(names: Mapping[str, ImageNameEntry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, known in sorted(names.items()):
        found.setdefault(known.id, []).append(key)
    return found


def _digits(digest: str) -> str:
    value = digest.partition(":")[2]
    if not value.isalnum():
        raise InvalidImage(f'"{digest}" is not a digest')
    return value


@contextmanager
def _locked(path: Path, operation: int) -> Iterator[None]:
    """Lock a file or directory, shared or exclusively; the lock ends with the process."""
    held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, operation)
        yield
    finally:
        os.close(held)
