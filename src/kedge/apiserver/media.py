"""Media types: the format of a response, and that of a body."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from kedge.api.core_v1.pod import pod_addresses
from kedge.api.protobuf.messages import MEDIA_TYPE

Form = Literal[
    "json",
    "yaml",
    "protobuf",
    "table",
    "partial",
    "partial-list",
    "protobuf-partial",
    "protobuf-partial-list",
    "addresses",
]
"""Objects as JSON, YAML or protobuf, rows for kubectl, only the metadata of objects, or only the
part of pods that nodes may see of the pods of other nodes."""

OFFERED = ("application/json", "application/yaml")
"""Media types of responses about custom resources."""
ACCEPTED = (*OFFERED, MEDIA_TYPE)
"""Media types of request bodies, and of responses about built-in kinds."""
STREAMS = ("application/json", MEDIA_TYPE)
"""Media types of watches."""
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


_MOST_TYPES = 256
"""Media types of one Accept header; further ones are ignored. A header has room for 15,000."""


class MediaType(NamedTuple):
    """One element of an Accept header."""

    name: str
    parameters: dict[str, str]
    quality: float = 1.0


class ResponseForm(NamedTuple):
    """The format of a response, and its version of meta.k8s.io."""

    form: Form
    version: str = "v1"


def parse_accept(header: str) -> tuple[MediaType, ...]:
    """Return the media types of an Accept header, best first."""
    parts = header.split(",", _MOST_TYPES)[:_MOST_TYPES]
    wanted = [_media_type(part) for part in parts if part.strip()]
    # As upstream, a quality of 0 does not exclude a type.
    return tuple(sorted(wanted, key=lambda media: -media.quality))


def accepts(header: str, offered: Sequence[str]) -> bool:
    """Whether an Accept header names one of the media types, with any parameters."""
    parts = header.split(",", _MOST_TYPES)[:_MOST_TYPES]
    names = {part.partition(";")[0].strip() for part in parts}
    return "*/*" in names or not names.isdisjoint(offered)


def body_type(content_type: str) -> str:
    """`application/json` from `application/json; charset=utf-8`."""
    return content_type.partition(";")[0].strip().lower()


CACHED_LENGTH = 1024
"""Results for longer headers are not kept, so that clients cannot fill the memory."""


def negotiate(accept: str) -> tuple[ResponseForm, ...]:
    """Return the formats that the client accepts, best first; empty if there are none."""
    return _negotiate_cached(accept) if len(accept) <= CACHED_LENGTH else _negotiate(accept)


def _negotiate(accept: str) -> tuple[ResponseForm, ...]:
    forms = [_form(media) for media in parse_accept(accept or "*/*")]
    return tuple(form for form in forms if form is not None)


_negotiate_cached = lru_cache(1024)(_negotiate)


def wants_aggregated_discovery(accept: str) -> bool:
    for media in parse_accept(accept):
        if media.parameters.get("as") == "APIGroupDiscoveryList":
            if media.parameters.get("v") == "v2":
                return True
        elif media.name in ("application/json", "*/*", "application/*"):
            return False
    return False


def _form(media: MediaType) -> ResponseForm | None:
    if media.name == MEDIA_TYPE:
        return _protobuf_form(media)
    if media.name not in ("application/json", "application/yaml", "*/*", "application/*"):
        return None
    match media.parameters.get("as"):
        case None:
            return ResponseForm("yaml" if media.name == "application/yaml" else "json")
        case "Table":
            return _meta_form("table", media)
        case "PartialObjectMetadata":
            return _meta_form("partial", media)
        case "PartialObjectMetadataList":
            return _meta_form("partial-list", media)
        case pod_addresses.AS:
            return _addresses_form(media)
        case _:
            return None


def _protobuf_form(media: MediaType) -> ResponseForm | None:
    """Return the form of a media type of protobuf. Tables have none."""
    match media.parameters.get("as"):
        case None:
            return ResponseForm("protobuf")
        case "PartialObjectMetadata":
            return _meta_form("protobuf-partial", media)
        case "PartialObjectMetadataList":
            return _meta_form("protobuf-partial-list", media)
        case _:
            return None


def _meta_form(form: Form, media: MediaType) -> ResponseForm | None:
    version = media.parameters.get("v", "")
    if media.parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1"):
        return ResponseForm(form, version)
    return None


def _addresses_form(media: MediaType) -> ResponseForm | None:
    known = {"as": pod_addresses.AS, "g": pod_addresses.GROUP, "v": "v1"}
    is_known = media.name == "application/json" and media.parameters == known
    return ResponseForm("addresses") if is_known else None


def wants_addresses_only(accept: str) -> bool:
    """Return whether no other form of pods can be the answer."""
    forms = negotiate(accept)
    return bool(forms) and all(each.form == "addresses" for each in forms)


def _media_type(part: str) -> MediaType:
    name, *pairs = part.split(";")
    parameters = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        parameters[key.strip().lower()] = value.strip().strip('"')
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 0.0
    return MediaType(name.strip().lower(), parameters, quality)
