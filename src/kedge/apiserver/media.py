"""Media types: the format of a response, and that of a body."""

from functools import lru_cache
from typing import Literal, NamedTuple

Form = Literal["json", "yaml", "table", "partial", "partial-list"]
"""Objects as JSON or YAML, rows for kubectl, or only the metadata of objects."""

OFFERED = ("application/json", "application/yaml")
"""Media types of responses."""
ACCEPTED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


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
    wanted = [_media_type(part) for part in header.split(",") if part.strip()]
    taken = [media for media in wanted if media.quality > 0]
    return tuple(sorted(taken, key=lambda media: -media.quality))


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
        case _:
            return None


def _meta_form(form: Form, media: MediaType) -> ResponseForm | None:
    version = media.parameters.get("v", "")
    if media.parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1"):
        return ResponseForm(form, version)
    return None


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
