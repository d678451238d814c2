"""managedFields: who owns which fields of an object, kept through updates and server-side apply."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from kedge.machinery import fields
from kedge.machinery.errors import Cause, StatusError, bad_request
from kedge.machinery.fields import Fields
from kedge.machinery.merge import faults, merge
from kedge.machinery.schema import Schema

Document = dict[str, Any]
Entry = dict[str, Any]

MAX_UPDATERS = 10
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MAX_ANNOTATIONS = 256 * 1024

_NOBODYS: Fields = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:name": {},
        "f:namespace": {},
        "f:uid": {},
        "f:resourceVersion": {},
        "f:generation": {},
        "f:creationTimestamp": {},
        "f:deletionTimestamp": {},
        "f:deletionGracePeriodSeconds": {},
        "f:selfLink": {},
        "f:managedFields": {},
    },
}


class FieldOwner(NamedTuple):
    """Who an entry belongs to. Appliers are the same owner in every version of the API."""

    manager: str
    operation: str
    api_version: str
    subresource: str

    def __str__(self) -> str:
        text = _q(self.manager)
        if self.subresource:
            text += f" with subresource {_q(self.subresource)}"
        return f"{text} using {self.api_version}" if self.api_version else text


Owners = dict[FieldOwner, Entry]


class ApplyConflict(StatusError):
    """An apply that would change what others own."""

    def __init__(self, conflicts: Sequence[tuple[str, str]]) -> None:
        causes = [
            Cause("FieldManagerConflict", f"conflict with {owner}", path)
            for owner, path in conflicts
        ]
        message = _conflict_message(conflicts)
        super().__init__(409, "Conflict", message, details={}, causes=causes)
        self.conflicts = tuple(conflicts)
        """Pairs of an owner, as messages name it, and the path of a field."""


def after_update(
    schema: Schema,
    live: Document | None,
    new: Document,
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
    ignore: Fields | None = None,
) -> list[Entry]:
    """The managedFields of an object that a create, update or patch made `new`.

    `ignore` holds the fields that this way of writing never changes, such as the status.
    """
    owners = _owners_before(live, new, subresource)
    if not owners and live is not None:
        # Somebody switched tracking off; only an apply switches it on again.
        return []
    owner = FieldOwner(manager or "unknown", "Update", api_version, subresource)
    try:
        owners = _updated(schema, live or {}, new, owners, owner, now, ignore or {})
    except ValueError:
        # A list whose items have no keys cannot be tracked; validation will complain of it.
        return []
    return _listed(_capped(owners))


REMEMBERED_LENGTH = 8192
"""Longer documents are looked at each time, so that nobody can fill the memory with them."""


def of_new(schema: Schema, encoded: bytes) -> msgspec.Raw | None:
    """The fields that who makes an object owns, from its encoded document; None if there are none.

    Most objects are made from a template, and those of one template differ in next to nothing.
    """
    return (
        _of_new_cached(schema, encoded)
        if len(encoded) < REMEMBERED_LENGTH
        else (_of_new(schema, encoded))
    )


def _of_new(schema: Schema, encoded: bytes) -> msgspec.Raw | None:
    try:
        owned = fields.difference(fields.brought(schema, msgspec.json.decode(encoded)), _NOBODYS)
    except ValueError:
        # A list whose items have no keys cannot be tracked; validation will complain of it.
        return None
    return in_order(owned) if owned else None


_of_new_cached = lru_cache(256)(_of_new)


def in_order(owned: Fields) -> msgspec.Raw:
    """A set of fields spelled in the order that clients compare with."""
    return msgspec.Raw(msgspec.json.encode(owned, order="sorted"))


def apply(
    schema: Schema,
    live: Document | None,
    config: Document,
    *,
    manager: str,
    force: bool,
    api_version: str,
    now: str,
    subresource: str = "",
    ignore: Fields | None = None,
) -> Document:
    """The object with its managedFields after server-side apply; `live` itself if nothing changes.

    Defaults that are filled in afterwards belong to nobody.
    """
    _check(schema, config)
    ignore = ignore or {}
    base = _bare(live or {})
    owners = _stored(live)
    if live is not None and not owners:
        before = FieldOwner("before-first-apply", "Update", api_version, subresource)
        owners = _updated(schema, {}, base, {}, before, now, ignore)
    owner = FieldOwner(manager or "unknown", "Apply", "", subresource)
    last = owners.pop(owner, None)
    applied = fields.without(fields.of(schema, config), ignore)
    result = merge(schema, base, config)
    if last is not None:
        result = _dropped(schema, result, last["fieldsV1"], applied, owners)
    if owners:
        taken, removed = _change(schema, base, result, ignore)
        if not force:
            _refuse_conflicts(schema, base, owners, taken, manager, api_version)
        owners = _relieved(owners, fields.union(taken, removed))
    if applied := fields.difference(applied, _NOBODYS):
        entry = _entry(owner, applied, api_version, now)
        owners[owner] = last if last and result == base and _agree(last, entry) else entry
    if manager == "kubectl":
        result = _with_last_applied(result, config)
    entries = _listed(owners)
    if live is not None and result == base and entries == (_sent(live) or []):
        return live
    return _with_entries(result, entries)


def _updated(
    schema: Schema,
    live: Document,
    new: Document,
    owners: Owners,
    owner: FieldOwner,
    now: str,
    ignore: Fields,
) -> Owners:
    """The owners after one of them changed the object by other means than apply."""
    taken, removed = _change(schema, live, new, ignore)
    owned = owners.get(owner)
    owners = _relieved(owners, fields.union(taken, removed))
    taken = fields.difference(taken, _NOBODYS)
    if taken:
        rest = fields.difference(owned["fieldsV1"], removed) if owned else {}
        owners[owner] = _entry(owner, fields.union(rest, taken), owner.api_version, now)
    return owners


def _change(schema: Schema, live: Document, new: Document, ignore: Fields) -> tuple[Fields, Fields]:
    """The fields that `new` sets or changes, and those that it lacks."""
    if not live:
        return fields.without(fields.brought(schema, new), ignore), {}
    found = fields.compare(schema, live, new)
    taken = fields.union(found.added, found.modified)
    return fields.without(taken, ignore), fields.without(found.removed, ignore)


def _relieved(owners: Owners, gone: Fields) -> Owners:
    """The owners without these fields. Who loses some keeps the time, who loses all vanishes."""
    result = {}
    for owner, entry in owners.items():
        owned = entry["fieldsV1"]
        if gone and fields.intersection(owned, gone):
            owned = fields.difference(owned, gone)
            entry = {**entry, "fieldsV1": owned}
        if owned:
            result[owner] = entry
    return result


def _dropped(
    schema: Schema, merged: Document, last: Fields, applied: Fields, others: Owners
) -> Document:
    """The document without what the applier applied last time, not now, and nobody else owns."""
    if not fields.difference(last, applied):
        return merged
    owned = _union_of_all([applied, *(entry["fieldsV1"] for entry in others.values())])

    def named(document: Document) -> Fields:
        return fields.named(schema, fields.of(schema, document))

    last = fields.named(schema, last)
    whole = named(merged)
    remains = named(fields.remove(schema, merged, last))
    kept = fields.union(remains, fields.named(schema, owned))
    nobodys = fields.difference(whole, kept)
    # What goes with an item that nobody owns must have been the applier's own, too.
    lost = fields.difference(whole, named(fields.remove(schema, merged, nobodys)))
    return _document(fields.remove(schema, merged, fields.intersection(lost, last)))


def _refuse_conflicts(
    schema: Schema,
    live: Document,
    owners: Owners,
    taken: Fields,
    manager: str,
    api_version: str,
) -> None:
    touched = {
        owner: common
        for owner, entry in owners.items()
        if (common := fields.intersection(entry["fieldsV1"], taken))
    }
    if touched and manager == "kubectl":
        # What client-side apply wrote may be taken over by kubectl's server-side apply.
        own = _last_applied_fields(schema, live, api_version)
        touched = {owner: fields.difference(common, own) for owner, common in touched.items()}
    conflicts = [
        (str(owner), path) for owner in sorted(touched) for path in fields.paths(touched[owner])
    ]
    if conflicts:
        raise ApplyConflict(conflicts)


def _conflict_message(conflicts: Sequence[tuple[str, str]]) -> str:
    if len(conflicts) == 1:
        owner, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {owner}: {path}"
    paths: dict[str, list[str]] = {}
    for owner, path in conflicts:
        paths.setdefault(owner, [f"conflicts with {owner}:"]).append(f"- {path}")
    lines = [line for group in paths.values() for line in group]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _check(schema: Schema, config: Document) -> None:
    meta = config.get("metadata") or {}
    if isinstance(meta, dict) and meta.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    found = faults(schema, config)
    if not found:
        return
    summary = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
    message = f"failed to create typed patch object ({_identity(config)}): {summary}"
    raise StatusError(500, "", message)


def _identity(config: Document) -> str:
    meta = config.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    group, _, version = str(config.get("apiVersion", "")).rpartition("/")
    place = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
    return f"{place}; {group}/{version}, Kind={config.get('kind', '')}"


# Entries: read, capped, written.


def _owners_before(live: Document | None, new: Document, subresource: str) -> Owners:
    """The owners before a write, as stored or as the writer of the whole object sends them."""
    sent = None if subresource else _sent(new)
    if sent is None:
        return _stored(live)
    if sent in ([], [{}]):
        return {}
    if live is not None and sent == _sent(live):
        return _stored(live)
    try:
        return {_owner(entry): entry for entry in map(_parsed, sent)} or _stored(live)
    except ValueError:
        return _stored(live)


def _sent(document: Document) -> list[Entry] | None:
    return (document.get("metadata") or {}).get("managedFields")


def _stored(live: Document | None) -> Owners:
    return {_owner(entry): entry for entry in (live and _sent(live)) or ()}


def _owner(entry: Entry) -> FieldOwner:
    operation = entry["operation"]
    version = "" if operation == "Apply" else entry["apiVersion"]
    return FieldOwner(entry.get("manager", ""), operation, version, entry.get("subresource", ""))


def _parsed(entry: Any) -> Entry:
    if not isinstance(entry, dict) or entry.get("operation") not in ("Apply", "Update"):
        raise ValueError("operation must be `Apply` or `Update`")
    if not entry.get("apiVersion"):
        raise ValueError("apiVersion must not be empty")
    if entry.get("fieldsType") != "FieldsV1":
        raise ValueError(f"invalid fieldsType {entry.get('fieldsType')!r}")
    return {**entry, "fieldsV1": fields.parsed(entry.get("fieldsV1") or {})}


def _entry(owner: FieldOwner, owned: Fields, api_version: str, time: str) -> Entry:
    entry = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
    }
    return {**entry, "subresource": owner.subresource} if owner.subresource else entry


def _agree(a: Entry, b: Entry) -> bool:
    """Whether two entries say the same, be it at different times."""
    return a == {**b, "time": a.get("time")}


def _capped(owners: Owners) -> Owners:
    """At most ten updaters: the oldest of each version share an entry."""
    updaters = [owner for owner in owners if owner.operation == "Update"]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return owners
    result = dict(owners)
    merged: dict[FieldOwner, list[Fields]] = {}
    oldest: dict[str, FieldOwner] = {}
    for owner in sorted(updaters, key=lambda owner: (owners[owner].get("time") or "", owner)):
        first = oldest.setdefault(owner.api_version, owner)
        if first is owner:
            continue
        if excess <= 0:
            break
        bucket = FieldOwner("ancient-changes", "Update", owner.api_version, "")
        newest = owners[owner].get("time", "")
        pair = [bucket, first if owner == bucket else owner] if bucket in result else [first, owner]
        parts = merged.setdefault(bucket, [])
        for each in pair:
            entry = result.pop(each)
            # The bucket's own fields are already in `parts` if it was made here.
            if each != bucket or not parts:
                parts.append(entry["fieldsV1"])
        result[bucket] = _entry(bucket, {}, owner.api_version, newest)
        excess -= 1
    for bucket, parts in merged.items():
        result[bucket] = {**result[bucket], "fieldsV1": _union_of_all(parts)}
    return result


def _union_of_all(sets: list[Fields]) -> Fields:
    """Return the union of the sets, merged in pairs: merging one after the other would copy the
    result each time."""
    while len(sets) > 1:
        sets = [
            fields.union(sets[i], sets[i + 1]) if i + 1 < len(sets) else sets[i]
            for i in range(0, len(sets), 2)
        ]
    return sets[0]


def _listed(owners: Owners) -> list[Entry]:
    def rank(entry: Entry) -> tuple[str, ...]:
        names = ("operation", "time", "manager", "apiVersion", "subresource")
        return tuple(entry.get(name) or "" for name in names)

    return sorted(owners.values(), key=rank)


# Documents.


def _bare(document: Document) -> Document:
    meta = document.get("metadata")
    if not meta or "managedFields" not in meta:
        return document
    return {**document, "metadata": {k: v for k, v in meta.items() if k != "managedFields"}}


def _with_entries(document: Document, entries: list[Entry]) -> Document:
    meta = {**(document.get("metadata") or {})}
    if entries:
        meta["managedFields"] = entries
    return {**document, "metadata": meta}


def _document(value: Any) -> Document:
    return value if isinstance(value, dict) else {}


# kubectl's annotation of client-side apply.


def _last_applied_fields(schema: Schema, live: Document, api_version: str) -> Fields:
    """The fields that client-side apply set and nobody has changed since."""
    text = _annotations(live).get(LAST_APPLIED)
    try:
        last = json.loads(text) if text else None
    except ValueError:
        return {}
    if not isinstance(last, dict) or last.get("apiVersion") != api_version:
        return {}
    if faults(schema, last):
        return {}
    owned = fields.of(schema, last)
    for changed in fields.compare(schema, last, live):
        owned = fields.difference(owned, changed)
    return owned


def _with_last_applied(document: Document, config: Document) -> Document:
    annotations = _annotations(document)
    if not annotations.get(LAST_APPLIED):
        return document
    annotations = {**annotations, LAST_APPLIED: _as_annotation(config)}
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > MAX_ANNOTATIONS:
        del annotations[LAST_APPLIED]
    return {**document, "metadata": {**document["metadata"], "annotations": annotations}}


def _as_annotation(config: Document) -> str:
    annotations = {k: v for k, v in _annotations(config).items() if k != LAST_APPLIED}
    if "annotations" in (config.get("metadata") or {}):
        config = {**config, "metadata": {**config["metadata"], "annotations": annotations}}
    return json.dumps(config, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n"


def _annotations(document: Document) -> dict[str, str]:
    return (document.get("metadata") or {}).get("annotations") or {}


def _q(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
