"""Fields that only the server sets: names, uid, timestamps, generation, status."""

from datetime import datetime
from functools import cache
from random import Random
from typing import Any

from msgspec.structs import replace

from kedge.api.model import Document, Object, ObjectMeta
from kedge.api.resource import Resource
from kedge.apiserver.request import Request
from kedge.machinery import names
from kedge.machinery.durations import format_time
from kedge.machinery.errors import bad_request, conflict


def new(request: Request, obj: Object, now: datetime, random: Random) -> Object:
    """Return a posted object with the fields that only the server may set."""
    meta = obj.metadata
    if meta.resourceVersion:
        raise bad_request("resourceVersion should not be set on objects to be created")
    placed = place(request, meta)
    name = placed.name
    if not name and placed.generateName:
        name = names.generate_name(placed.generateName, random)
    begun = replace(
        placed,
        name=name,
        uid=random_uid(random),
        creationTimestamp=format_time(now),
        generation=1 if request.resource.strategy.counts_generation else 0,
        deletionTimestamp="",
        deletionGracePeriodSeconds=None,
        selfLink="",
    )
    new_ = replace(obj, metadata=begun)
    if request.resource.strategy.keeps_posted_status:
        return new_
    return without_status(request.resource, new_)


def random_uid(random: Random) -> str:
    """Return a UUID of version 4; six of its bits are fixed."""
    digits = f"{random.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) & 3]
    parts = digits[:8], digits[8:12], "4" + digits[13:16], variant + digits[17:20], digits[20:]
    return "-".join(parts)


def place(request: Request, meta: ObjectMeta) -> ObjectMeta:
    """Return the metadata with the URL's namespace and name; 400 if the body has others.

    A namespace in a cluster-scoped object is dropped.
    """
    if meta.namespace and request.namespace and meta.namespace != request.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if request.name and meta.name and meta.name != request.name:
        raise bad_request(
            f"the name of the object ({meta.name}) does not match the name on the URL "
            f"({request.name})"
        )
    return replace(meta, namespace=request.namespace, name=meta.name or request.name)


def updated(request: Request, obj: Object, old: Object) -> Object:
    """Return a changed object with the fields that an update cannot change."""
    meta = place(request, obj.metadata)
    was = old.metadata
    if meta.uid and meta.uid != was.uid and request.verb == "update":
        why = f"Precondition failed: UID in precondition: {meta.uid}, UID in object meta: {was.uid}"
        raise conflict(request.resource.group, request.resource.plural, was.name, why)
    kept = replace(
        meta,
        uid=meta.uid or was.uid,
        creationTimestamp=was.creationTimestamp,
        generation=was.generation,
        deletionTimestamp=was.deletionTimestamp,
        deletionGracePeriodSeconds=was.deletionGracePeriodSeconds,
        selfLink="",
        resourceVersion=was.resourceVersion,
    )
    return replace(obj, metadata=kept)


def without_status(resource: Resource[Any], obj: Object) -> Object:
    if not resource.has_status:
        return obj
    if isinstance(obj, Document):
        content = {key: value for key, value in obj.content.items() if key != "status"}
        return replace(obj, content=content)
    return replace(obj, status=_no_status(type(obj)))


@cache
def _no_status(kind: type[Any]) -> Any:
    return kind().status


def with_status_of(resource: Resource[Any], obj: Object, other: Object) -> Object:
    """Return the object with the other's status."""
    if not resource.has_status:
        return obj
    if isinstance(obj, Document) and isinstance(other, Document):
        content = {key: value for key, value in obj.content.items() if key != "status"}
        if "status" in other.content:
            content["status"] = other.content["status"]
        return replace(obj, content=content)
    return replace(obj, status=other.status)  # type: ignore[attr-defined]


def next_generation(resource: Resource[Any], new_: dict[str, Any], old: dict[str, Any]) -> int:
    """Return the generation after a write: one more if the desired state changed."""
    generation: int = old["metadata"].get("generation", 0)
    if resource.strategy.counts_generation and _desired(resource, new_) != _desired(resource, old):
        return generation + 1
    return generation


def _desired(resource: Resource[Any], document: dict[str, Any]) -> dict[str, Any]:
    hidden = ("metadata", "status") if resource.has_status else ("metadata",)
    return {key: value for key, value in document.items() if key not in hidden}
