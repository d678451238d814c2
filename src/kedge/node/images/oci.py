"""The JSON documents of images, as defined by OCI and docker."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from kedge.api.model import ModelMeta

OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES: Final = (OCI_INDEX, DOCKER_INDEX)
MANIFESTS: Final = (OCI_MANIFEST, DOCKER_MANIFEST)

CONTAINERD_NAME: Final = "io.containerd.image.name"
OCI_NAME: Final = "org.opencontainers.image.ref.name"

MOST_LAYERS: Final = 127
"""Docker's limit; overlay file systems can stack some more."""

_ARCHITECTURES: Final = {
    "x86_64": ("amd64", ""),
    "aarch64": ("arm64", "v8"),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "i386": ("386", ""),
    "i686": ("386", ""),
}

T = TypeVar("T")


MESSAGE_CHARACTERS: Final = 2000
"""Characters of an error's message. Messages quote documents and headers of registries, and become
part of a pod's status."""


def bounded(message: str) -> str:
    """Return a message, cut if it is too long."""
    is_long = len(message) > MESSAGE_CHARACTERS
    return f"{message[:MESSAGE_CHARACTERS]}..." if is_long else message


class InvalidImage(Exception):
    """An image is invalid or not supported; the text says why."""

    def __init__(self, why: str) -> None:
        super().__init__(bounded(why))


class OciDocument(
    msgspec.Struct,
    metaclass=ModelMeta,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
):
    """Base of the documents; unknown fields are ignored."""


class ImagePlatform(OciDocument):
    """The platform that an image runs on."""

    architecture: str = ""
    os: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


class ContentDescriptor(OciDocument):
    """A reference to content by its digest."""

    media_type: str = ""
    digest: str = ""
    size: int = 0
    annotations: Mapping[str, str] | None = None
    platform: ImagePlatform | None = None


class ImageIndex(OciDocument):
    """A list of images, or of one image for several platforms."""

    media_type: str = ""
    manifests: Sequence[ContentDescriptor] | None = None


class ImageManifest(OciDocument):
    """One image: its configuration and its layers, lowest first."""

    media_type: str = ""
    config: ContentDescriptor = ContentDescriptor()
    layers: Sequence[ContentDescriptor] | None = None


class SavedImage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One image in the `manifest.json` of a docker archive; it names files, not digests."""

    config: str = ""
    repo_tags: Sequence[str] | None = None
    layers: Sequence[str] | None = None


class ImageConfigDocument(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The container configuration in an image's document."""

    env: Sequence[str] | None = None
    entrypoint: Sequence[str] | None = None
    cmd: Sequence[str] | None = None
    working_dir: str | None = None
    user: str | None = None
    volumes: Mapping[str, object] | None = None
    stop_signal: str | None = None
    exposed_ports: Mapping[str, object] | None = None
    labels: Mapping[str, str] | None = None


class LayerDigests(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of the uncompressed layers."""

    diff_ids: Sequence[str] | None = None


class ImageDocument(OciDocument):
    """The configuration document of an image."""

    architecture: str = ""
    os: str = ""
    variant: str = ""
    created: str | None = None
    config: ImageConfigDocument | None = None
    rootfs: LayerDigests | None = None


class ImageConfig(OciDocument):
    """The defaults of a container from its image."""

    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str = ""
    user: str = ""
    volumes: tuple[str, ...] = ()
    """Directories that the image declares as volumes."""
    stop_signal: str = ""
    exposed_ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}


def config_of(document: ImageDocument) -> ImageConfig:
    """Return the container configuration of an image's document."""
    said = document.config or ImageConfigDocument()
    return ImageConfig(
        env=tuple(said.env or ()),
        entrypoint=tuple(said.entrypoint or ()),
        cmd=tuple(said.cmd or ()),
        working_dir=said.working_dir or "",
        user=said.user or "",
        volumes=tuple(sorted(said.volumes or ())),
        stop_signal=said.stop_signal or "",
        exposed_ports=tuple(sorted(said.exposed_ports or ())),
        labels=dict(said.labels or {}),
    )


def decode(content: bytes, type_: type[T], what: str) -> T:
    """Decode a document. Raises InvalidImage with its name."""
    try:
        return msgspec.json.decode(content, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidImage(f"{what} cannot be read: {error}") from error


def this_machine() -> ImagePlatform:
    machine = platform.machine()
    architecture, variant = _ARCHITECTURES.get(machine, (machine, ""))
    return ImagePlatform(os="linux", architecture=architecture, variant=variant)


def pick(manifests: Iterable[ContentDescriptor], wanted: ImagePlatform) -> ContentDescriptor:
    """Return the manifest of an index for the platform. Raises InvalidImage with the available
    ones."""
    listed = list(manifests)
    fitting = [each for each in listed if _runs(each.platform, wanted)]
    exact = [each for each in fitting if each.platform and each.platform.variant == wanted.variant]
    if found := exact or fitting:
        return found[0]
    there = sorted({str(each.platform) for each in listed if _known(each.platform)})
    raise InvalidImage(
        f"it is not for {wanted}, only for {', '.join(there) or 'no known platform'}"
    )


def _runs(offered: ImagePlatform | None, wanted: ImagePlatform) -> bool:
    return offered is None or (
        offered.os == wanted.os
        and offered.architecture == wanted.architecture
        # An older variant runs on a newer machine, but not the reverse.
        and offered.variant <= (wanted.variant or offered.variant)
    )


def _known(offered: ImagePlatform | None) -> bool:
    return offered is not None and offered.os not in ("", "unknown")


def check_layers(document: ImageDocument, layers: int) -> Sequence[str]:
    """Return the digests of an image's uncompressed layers; their number must match."""
    diff_ids = (document.rootfs or LayerDigests()).diff_ids or ()
    if len(diff_ids) != layers:
        raise InvalidImage(f"its configuration knows {len(diff_ids)} layers, but it has {layers}")
    if not layers:
        raise InvalidImage("it has no layers: it is not an image that containers can be made of")
    if layers > MOST_LAYERS:
        raise InvalidImage(
            f"it has {layers} layers, more than the {MOST_LAYERS} that can be stacked"
        )
    return diff_ids
