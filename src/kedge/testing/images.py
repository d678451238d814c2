"""Images for tests: small archives of every form, made of dictionaries."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kedge.node.images.oci import (
    CONTAINERD_NAME,
    OCI_INDEX,
    OCI_MANIFEST,
    OCI_NAME,
    this_machine,
)

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class LayerMember:
    """A member of a layer with metadata: a link, a device, an owner or a mode."""

    content: bytes = b""
    type: bytes = tarfile.REGTYPE
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    target: str = ""
    device: tuple[int, int] = (0, 0)
    mtime: float = 1_700_000_000
    pax: Mapping[str, str] = field(default_factory=dict)


def directory(mode: int = 0o755, **more: Any) -> LayerMember:
    return LayerMember(type=tarfile.DIRTYPE, mode=mode, **more)


def symlink(target: str) -> LayerMember:
    return LayerMember(type=tarfile.SYMTYPE, mode=0o777, target=target)


def hard_link(target: str) -> LayerMember:
    return LayerMember(type=tarfile.LNKTYPE, target=target)


def program(content: bytes) -> LayerMember:
    return LayerMember(content, mode=0o755)


Files = Mapping[str, bytes | LayerMember]
"""The content of a layer, by path."""


def layer(files: Files | Sequence[tuple[str, bytes | LayerMember]]) -> bytes:
    """A layer's tar file, not compressed, its members in the order given; a sequence may have
    the same path twice."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, given in files.items() if isinstance(files, Mapping) else files:
            entry = given if isinstance(given, LayerMember) else LayerMember(given)
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.mtime = entry.type, entry.mode, entry.mtime
            member.uid, member.gid = entry.uid, entry.gid
            member.linkname = entry.target
            member.devmajor, member.devminor = entry.device
            member.size = len(entry.content)
            member.pax_headers = dict(entry.pax)
            archive.addfile(member, io.BytesIO(entry.content))
    return buffer.getvalue()


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image with all its documents."""

    config: bytes
    manifest: bytes
    tars: tuple[bytes, ...]
    """The layers, the lowest first."""
    blobs: Mapping[str, bytes]
    """By digest: configuration, manifest and compressed layers."""

    @property
    def id(self) -> str:
        return sha256(self.config)

    @property
    def digest(self) -> str:
        return sha256(self.manifest)


def build(
    *layers: Files | bytes, config: Mapping[str, Any] | None = None, architecture: str = ""
) -> BuiltImage:
    """An image of layers, given as files or as tar files; `config` is what containers see."""
    tars = [each if isinstance(each, bytes) else layer(each) for each in layers]
    document = msgspec.json.encode(
        {
            "architecture": architecture or this_machine().architecture,
            "os": "linux",
            "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": [sha256(tar) for tar in tars]},
        }
    )
    packed = [gzip.compress(tar, 1, mtime=0) for tar in tars]
    manifest = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor(document, "application/vnd.oci.image.config.v1+json"),
            "layers": [
                descriptor(each, "application/vnd.oci.image.layer.v1.tar+gzip") for each in packed
            ],
        }
    )
    blobs = {sha256(content): content for content in (document, manifest, *packed)}
    return BuiltImage(document, manifest, tuple(tars), blobs)


def descriptor(content: bytes, media_type: str, **more: Any) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": sha256(content), "size": len(content), **more}


def index(*manifests: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests})


def layout_files(*images: tuple[BuiltImage, Sequence[str]]) -> dict[str, bytes]:
    """The files of an OCI layout; a name is one for containerd, or a mere tag for OCI."""
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
    listed = []
    for image, names in images:
        for name in names or ("",):
            key = CONTAINERD_NAME if "/" in name else OCI_NAME
            noted = {"annotations": {key: name}} if name else {}
            listed.append(descriptor(image.manifest, OCI_MANIFEST, **noted))
        files |= {f"blobs/{key.replace(':', '/')}": blob for key, blob in image.blobs.items()}
    return {**files, "index.json": index(*listed)}


def saved_files(*images: tuple[BuiltImage, Sequence[str]]) -> dict[str, bytes | LayerMember]:
    """The files of a docker archive as `docker save` wrote it before version 25."""
    files: dict[str, bytes | LayerMember] = {}
    listed = []
    for image, names in images:
        config = f"{image.id.partition(':')[2]}.json"
        files[config] = image.config
        layers = []
        for tar in image.tars:
            place = f"{hashlib.sha256(b'v1' + tar).hexdigest()}/layer.tar"
            files[place] = tar
            layers.append(place)
        listed.append({"Config": config, "RepoTags": list(names) or None, "Layers": layers})
    return {**files, "manifest.json": msgspec.json.encode(listed)}


def oci_archive(path: Path, image: BuiltImage, *names: str) -> Path:
    """An OCI layout as a tar file."""
    path.write_bytes(layer(layout_files((image, names))))
    return path


def docker_archive(path: Path, image: BuiltImage, *names: str) -> Path:
    """Return the archive that `docker save` writes."""
    path.write_bytes(layer(saved_files((image, names))))
    return path


def write_files(directory: Path, files: Mapping[str, bytes]) -> Path:
    """The files of an archive as a directory."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory
