"""managedFields: which manager owns which fields, kept through updates and server-side apply.

An entry of managedFields is a set of field paths that one manager wrote last with one operation.
`Update` stands for create, PUT and the other patches, `Apply` for server-side apply. The two follow
different rules:

- An **update** takes the fields that it changes from all other managers, without asking. It is
  compared with the live object, because the client sends the whole object and most of it is not
  the client's own. A field that the update sends unchanged keeps its owner.
- An **apply** owns every field that its configuration names, changed or not, and no other: the
  configuration is the complete list of what the applier wants. A field that differs from the live
  value and belongs to another manager is a conflict (409) unless the request forces it. A field
  with the same value becomes shared by both. A field that the last configuration named and this
  one does not is removed from the object if no other manager owns it.

The owner of an update includes the apiVersion, that of an apply does not (`FieldOwner`). An applier
may move its configuration to another version and must find its own earlier entry then; otherwise
the fields that it dropped would stay for ever.

Sets of fields cannot be converted to another version, objects can. So the objects before and
after a write of a kind with several versions are compared in the version of each entry
(`ObjectVersions`).

An apply must not conflict with values that no client wrote. Therefore a create is tracked before
admission, so that fields from plugins have no owner, and an apply tracks its configuration and not
the merged object, so that defaults have none.
"""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from kedge.apiserver.dropped_fields import Removal, union_of_all
from kedge.apiserver.object_versions import ObjectVersions, UnconvertibleObject
from kedge.machinery import fields
from kedge.machinery.errors import StatusCause, StatusError, bad_request
from kedge.machinery.fields import Fields
from kedge.machinery.merge import faults, merge
from kedge.machinery.schema import Schema

Document = dict[str, Any]
Entry = dict[str, Any]

MAX_UPDATERS = 10
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MAX_ANNOTATIONS = 256 * 1024

UNOWNED: Fields = {
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
"""Fields that the server sets or that identify the object. They never have an owner: two managers
that name the same object do not conflict about its name. Upstream calls this set stripped."""


class FieldOwner(NamedTuple):
    """The key of an entry. Appliers are the same owner in every version of the API, so that their
    `api_version` is empty."""

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
    """An apply that would change fields of other managers."""

    def __init__(self, conflicts: Sequence[tuple[str, str]]) -> None:
        causes = [
            StatusCause("FieldManagerConflict", f"conflict with {owner}", path)
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
    versions: ObjectVersions | None = None,
) -> list[Entry]:
    """Return the managedFields of an object after a create, update or patch made it `new`.

    `ignore` holds the fields that this endpoint never changes, such as the status. Without
    `versions` all entries are taken for those of `api_version`.
    """
    owners = _owners_before(live, new, subresource)
    if not owners and live is not None:
        # A client has sent an empty list, which switches tracking off. Upstream has the same rule:
        # only an apply switches it on again, and then nothing is known about earlier writes.
        return []
    owners = _remembered(owners, versions)
    owner = FieldOwner(manager or "unknown", "Update", api_version, subresource)
    try:
        change = WriteChange(schema, live or {}, new, ignore or {}, owner, versions)
        owners = _updated(change, owners, owner, now)
    except ValueError:
        # A list of maps whose items lack their keys has no paths, and an object may not fit into
        # the version of an entry. Tracking must not fail the request here: validation names the
        # missing keys, with a better message.
        return []
    return _listed(_capped(owners))


REMEMBERED_LENGTH = 8192
"""Results for longer documents are not kept, so that clients cannot fill the memory."""


def of_new(schema: Schema, encoded: bytes) -> msgspec.Raw | None:
    """Return the fields that the creator of an object owns; None if there are none. The status is
    not among them, even if it has defaults.

    `encoded` is the document without names, and with empty labels and annotations, because values
    do not matter here. Pods of one template have the same encoded document then, and the cache
    answers for all but the first.
    """
    return (
        _of_new_cached(schema, encoded)
        if len(encoded) < REMEMBERED_LENGTH
        else (_of_new(schema, encoded))
    )


def _of_new(schema: Schema, encoded: bytes) -> msgspec.Raw | None:
    try:
        document = msgspec.json.decode(encoded)
        document.pop("status", None)
        owned = fields.difference(fields.new_fields(schema, document), UNOWNED)
    except ValueError:
        # As in after_update: validation has the better message.
        return None
    return in_order(owned) if owned else None


_of_new_cached = lru_cache(256)(_of_new)


def forget_schemas() -> None:
    """Drop cached results. The schemas in their keys may no longer be served."""
    _of_new_cached.cache_clear()
    fields.forget_schemas()


def in_order(owned: Fields) -> msgspec.Raw:
    """Return a set of fields in the order of its keys, which is how upstream serializes sets."""
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
    settle: Callable[[Document], Document],
    subresource: str = "",
    ignore: Fields | None = None,
    versions: ObjectVersions | None = None,
) -> Document:
    """Return the object after server-side apply, with managedFields; `live` if nothing changes.

    `settle` returns a document as it would be stored, without nulls and whatever else is left off.
    Defaults that are filled in afterwards have no owner.

    The order of the steps matters. The merge comes first and the removal second, because a field
    may move: an item of a list that the applier dropped and another manager owns must survive with
    the fields of the other manager. Conflicts are looked for last, in the difference between the
    live object and the final result, so that removing a field of one's own is no conflict and
    restoring a value that is there already is none either.
    """
    _check(schema, config)
    ignore = ignore or {}
    base = _bare(live or {})
    owners = _stored(live)
    if live is not None and not owners:
        owners = _untracked(schema, base, ignore, api_version, subresource, now)
    owner = FieldOwner(manager or "unknown", "Apply", "", subresource)
    owners = _remembered(owners, versions)
    if versions is not None:
        for entry in owners.values():
            _in_words("", versions.converted, base, entry["apiVersion"])
    # The applier's own entry is set aside: nothing that it owned can conflict with itself, and a
    # new entry replaces the old one as a whole.
    last = owners.pop(owner, None)
    applied = fields.without(fields.of(schema, config), ignore)
    result = merge(schema, base, config)
    if last is not None:
        removal = Removal(schema, api_version, applied, last, list(owners.values()), versions)
        result = _in_words("failed to prune fields: ", removal.of, result)
    if owners:
        new_owner = owner._replace(api_version=api_version)
        change = WriteChange(schema, base, result, ignore, new_owner, versions)
        _in_words("failed to convert new object: ", change.prepare, owners)
        if not force:
            _refuse_conflicts(schema, base, owners, change, manager, api_version)
        owners = _relieved(owners, change)
    merged, result = result, settle(result)
    if applied := fields.difference(applied, UNOWNED):
        is_same = live is not None and (merged if last is None else result) == base
        owners[owner] = _entry(owner, applied, api_version, _time(last) if is_same else now)
    if manager == "kubectl":
        result = _with_last_applied(result, config)
    entries = _listed(owners)
    if live is not None and result == base and entries == (_sent(live) or []):
        return live
    return _with_entries(result, entries)


def _untracked(
    schema: Schema, live: Document, ignore: Fields, api_version: str, subresource: str, now: str
) -> Owners:
    """Return the owner of an object from before tracking, or with tracking switched off. Without
    one its fields could be overwritten without a conflict; so they get a collective one, as
    upstream does."""
    owner = FieldOwner("before-first-apply", "Update", api_version, subresource)
    return _updated(WriteChange(schema, {}, live, ignore, owner), {}, owner, now)


def _time(last: Entry | None) -> str:
    """Return the time of an entry whose apply changes nothing.

    It must not change, or every run of a controller that applies the same configuration would be a
    write and a watch event. If the apply is the first one of its manager, the entry has no time, as
    with kube-apiserver. A null or empty value that is not stored is a change there, and here only
    the first time.
    """
    return "" if last is None else last.get("time", "")


class WriteChange:
    """The fields that a write sets and removes, in the version of each entry of managedFields."""

    def __init__(
        self,
        schema: Schema,
        live: Document,
        new: Document,
        ignore: Fields,
        owner: FieldOwner,
        versions: ObjectVersions | None = None,
    ) -> None:
        self.taken, self.removed = _change(schema, live, new, ignore)
        self._objects = _bare(live), _bare(new)
        # Upstream ignores the status of a main resource in the version of the request only.
        self._ignore_elsewhere = ignore if owner.subresource == "status" else {}
        self._versions = versions if live else None
        self._by_version = {owner.api_version: (self.taken, self.removed)}

    def prepare(self, owners: Owners) -> None:
        """Compare the objects in the versions of all entries; raises UnconvertibleObject."""
        for entry in owners.values():
            self.of(entry)

    def of(self, entry: Entry) -> tuple[Fields, Fields]:
        """Return the fields that the write sets or changes, and those that it removes."""
        if self._versions is None:
            return self.taken, self.removed
        version = entry["apiVersion"]
        found = self._by_version.get(version)
        if found is None:
            old, new = (self._versions.converted(each, version) for each in self._objects)
            schema = self._versions.schema(version)
            found = self._by_version[version] = _change(schema, old, new, self._ignore_elsewhere)
        return found


def _updated(change: WriteChange, owners: Owners, owner: FieldOwner, now: str) -> Owners:
    """Return the owners after one of them changed the object by other means than apply.

    `owned` is read before the others lose fields: the writer keeps what it owned, even if it wrote
    those very fields again now, and loses only what it removed from the object.
    """
    owned = owners.get(owner)
    owners = _relieved(owners, change)
    taken = fields.difference(change.taken, UNOWNED)
    if taken:
        rest = fields.difference(owned["fieldsV1"], change.removed) if owned else {}
        owners[owner] = _entry(owner, fields.union(rest, taken), owner.api_version, now)
    return owners


def _change(schema: Schema, live: Document, new: Document, ignore: Fields) -> tuple[Fields, Fields]:
    """Return the fields that `new` sets or changes, and those that it lacks."""
    if not live:
        return fields.without(fields.new_fields(schema, new), ignore), {}
    found = fields.compare(schema, live, new)
    taken = fields.union(found.added, found.modified)
    return fields.without(taken, ignore), fields.without(found.removed, ignore)


def _relieved(owners: Owners, change: WriteChange) -> Owners:
    """Return the owners without the changed fields. An owner that loses some of its fields keeps
    its time, because it has not written; one that loses all of them is left out."""
    result = {}
    for owner, entry in owners.items():
        owned = entry["fieldsV1"]
        gone = fields.union(*change.of(entry))
        if gone and fields.intersection(owned, gone):
            owned = fields.difference(owned, gone)
            entry = {**entry, "fieldsV1": owned}
        if owned:
            result[owner] = entry
    return result


def _in_words(prefix: str, convert: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a step of an apply; 500 if an object does not fit into a version."""
    try:
        return convert(*args)
    except UnconvertibleObject as error:
        raise StatusError(500, "", f"{prefix}{error}") from None


def _refuse_conflicts(
    schema: Schema,
    live: Document,
    owners: Owners,
    change: WriteChange,
    manager: str,
    api_version: str,
) -> None:
    touched = {
        owner: common
        for owner, entry in owners.items()
        if (common := fields.intersection(entry["fieldsV1"], change.of(entry)[0]))
    }
    if touched and manager == "kubectl":
        # Client-side apply wrote as the updater "kubectl-client-side-apply". Its fields may pass
        # to server-side apply without --force-conflicts, or no existing object could migrate. The
        # annotation proves which fields these are, unless they were changed since.
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


def unconvertible(document: Document, why: str) -> StatusError:
    """Return the error for a merged object that is none of its kind."""
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    kind = f"{group}/{version}, Kind={document.get('kind', '')}"
    return StatusError(
        500,
        "",
        f"failed to convert new object ({_identity(document)}) to proper version: "
        f"unable to convert unstructured object to {kind}: {why}",
    )


def _identity(config: Document) -> str:
    meta = config.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    group, _, version = str(config.get("apiVersion", "")).rpartition("/")
    place = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
    return f"{place}; {group}/{version}, Kind={config.get('kind', '')}"


# Entries: read, capped, written.


def _owners_before(live: Document | None, new: Document, subresource: str) -> Owners:
    """Return the owners before a write, as stored or as the writer of the whole object sends them.

    A client may edit managedFields like any other field: remove an entry, or send `[]` or `[{}]` to
    reset all of them. Entries that cannot be parsed are ignored as a whole, as upstream does; an
    error would make it impossible to update an object that another server wrote. Through a
    subresource they cannot be edited.
    """
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


def _remembered(owners: Owners, versions: ObjectVersions | None) -> Owners:
    """Return the owners without those of versions that the server does not know any more."""
    if versions is None:
        return owners
    gone = versions.is_forgotten
    return {owner: each for owner, each in owners.items() if not gone(each["apiVersion"])}


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
    return {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": api_version,
        **({"time": time} if time else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
        **({"subresource": owner.subresource} if owner.subresource else {}),
    }


def _capped(owners: Owners) -> Owners:
    """Return the owners with at most ten updaters, the oldest of each version merged into one.

    Each user agent is a manager, so that the number of updaters is up to the clients; without a
    bound, an object would grow with every new one. Only fields of the same apiVersion are merged,
    because an entry has one apiVersion. The oldest pair goes first, and once a version has its
    "ancient-changes" the next oldest joins it. Appliers are never merged: their entry decides which
    fields their next configuration removes.
    """
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
            # The fields of a bucket that was made here are in `parts` already.
            if each != bucket or not parts:
                parts.append(entry["fieldsV1"])
        result[bucket] = _entry(bucket, {}, owner.api_version, newest)
        excess -= 1
    for bucket, parts in merged.items():
        result[bucket] = {**result[bucket], "fieldsV1": union_of_all(parts)}
    return result


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


# kubectl's annotation of client-side apply.


def _last_applied_fields(schema: Schema, live: Document, api_version: str) -> Fields:
    """Return the fields that client-side apply set and that have their values since."""
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
