"""Fields that only the server sets: names, uid, timestamps, generation, status."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from kedge.api.model import Document, Object, ObjectMeta, OwnerReference
from kedge.api.resource import Resource
from kedge.apiserver.request import Request
from kedge.machinery import names
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError, bad_request, conflict

_VERSION_DIGITS: Final = 20
"""The digits of the largest version. Python refuses to read a number of thousands of digits."""


def new(request: Request, obj: Object, now: datetime, random: Random) -> Object:
    """Return a posted object with the fields that only the server may set."""
    meta = obj.metadata
    placed = place(request, meta)
    name = placed.name
    if not name and placed.generateName:
        name = names.generate_name(placed.generateName, random)
    begun = replace(
        placed,
        name=name,
        uid=random_uid(random),
        # Only a dry run shows the text: the store gives every other object its version.
        resourceVersion=meta.resourceVersion if request.query.get("dryRun") else "",
        creationTimestamp=format_time(now),
        generation=_first_generation(request.resource, meta),
        deletionTimestamp="",
        deletionGracePeriodSeconds=None,
        selfLink="",
    )
    new_ = replace(obj, metadata=begun)
    if request.resource.strategy.keeps_posted_status:
        return new_
    return without_status(request.resource, new_)


def check_unversioned(document: Mapping[str, Any]) -> None:
    """Refuse a posted object that has the version of a stored one with 400."""
    version = (document.get("metadata") or {}).get("resourceVersion")
    if isinstance(version, str) and is_version(version):
        raise bad_request("resourceVersion should not be set on objects to be created")


def is_version(text: str) -> bool:
    """Whether the text is the version of a stored object. Upstream lets a new object come with any
    other text, and drops it."""
    if not (text.isascii() and text.isdecimal()):
        return False
    digits = text.lstrip("0")
    return 0 < len(digits) <= _VERSION_DIGITS and int(digits) < 2**64


def _first_generation(resource: Resource[Any], meta: ObjectMeta) -> int:
    """Return the generation of a new object. Upstream keeps the client's for kinds that do not
    count it."""
    strategy = resource.strategy
    return strategy.first_generation if strategy.counts_generation else meta.generation


def random_uid(random: Random) -> str:
    """Return a UUID of version 4; six of its bits are fixed."""
    digits = f"{random.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) & 3]
    parts = digits[:8], digits[8:12], "4" + digits[13:16], variant + digits[17:20], digits[20:]
    return "-".join(parts)


def place(request: Request, meta: ObjectMeta) -> ObjectMeta:
    """Return the metadata with the URL's namespace; 400 if the body has another namespace, or not
    the URL's name.

    A namespace in a cluster-scoped object is dropped. A missing name is refused although the URL
    has it: the body `{}` would empty an object.
    """
    if meta.namespace and request.namespace and meta.namespace != request.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if request.name and not meta.name:
        raise nameless(request)
    if request.name and meta.name != request.name:
        raise bad_request(
            f"the name of the object ({meta.name}) does not match the name on the URL "
            f"({request.name})"
        )
    if meta.namespace == request.namespace:
        return meta
    return replace(meta, namespace=request.namespace)


def nameless(request: Request) -> StatusError:
    """Return the error for an object without the name that the URL has."""
    return bad_request(
        f"the name of the object ({request.name} based on URL) was undeterminable: "
        "name must be provided"
    )


def updated(request: Request, obj: Object, old: Object) -> Object:
    """Return a changed object with the fields that an update cannot change."""
    meta = place(request, obj.metadata)
    was = old.metadata
    if meta.uid and meta.uid != was.uid and request.verb == "update":
        # The store of a dry run gets the key without the prefix.
        is_dry = bool(request.query.get("dryRun"))
        place_in_store = request.key.removeprefix("/registry") if is_dry else request.key
        prefix = (
            f"StorageError: invalid object, Code: 4, Key: {place_in_store}, ResourceVersion: 0, "
            "AdditionalErrorMsg: "
        )
        raise other_uid(request, meta.uid, was.uid, prefix)
    kept = replace(
        meta,
        uid=meta.uid or was.uid,
        creationTimestamp=was.creationTimestamp,
        generation=was.generation,
        # A mark that the object does not have, and another grace period, are for validation to
        # refuse.
        deletionTimestamp=was.deletionTimestamp or meta.deletionTimestamp,
        deletionGracePeriodSeconds=was.deletionGracePeriodSeconds
        if meta.deletionGracePeriodSeconds is None
        else meta.deletionGracePeriodSeconds,
        selfLink="",
        resourceVersion=was.resourceVersion,
    )
    return replace(obj, metadata=kept)


def other_uid(request: Request, wanted: str, found: str, prefix: str = "") -> StatusError:
    """Return the error for an update of an object that was deleted and perhaps created again."""
    why = f"{prefix}Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    return conflict(request.resource.group, request.resource.plural, request.name, why)


_REPEATED_OWNERS: Final = (
    ".metadata.ownerReferences contains duplicate entries{}; API server dedups owner references in "
    "1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate "
    "UID(s) observed: {}"
)


def with_distinct_owners(request: Request, obj: Object) -> Object:
    """Return an object without owner references that repeat another one, with a warning."""
    given = obj.metadata.ownerReferences
    owners = list(dict.fromkeys(given))
    if len(owners) == len(given):
        return obj
    repeated = [uid for uid, times in _further(given) for _ in range(times)]
    when = " after mutating admission happens" if request.verb == "patch" else ""
    request.warnings.append(_REPEATED_OWNERS.format(when, ", ".join(repeated)))
    return replace(obj, metadata=replace(obj.metadata, ownerReferences=owners))


def _further(references: Sequence[OwnerReference]) -> list[tuple[str, int]]:
    return [(each.uid, times - 1) for each, times in Counter(references).items()]


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


def _desired(resource: Resource[Any], document: dict[str, Any]) -> object:
    if resource.strategy.desired_state is not None:
        return resource.strategy.desired_state(document)
    hidden = ("metadata", "status") if resource.has_status else ("metadata",)
    return {key: value for key, value in document.items() if key not in hidden}
