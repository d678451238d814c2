"""Create, update and the four patches: the way from a document to the store.

The order of the steps is upstream's, and each place has a reason:

1. decode and default, so that plugins and validation see complete objects;
2. note the owners of fields, before admission: values from plugins have no owner (managed.py);
3. mutating admission, which may change anything;
4. validation of the result, since a plugin or webhook can make an object invalid, too;
5. validating admission last: quota must count what will be stored, and nothing may change after;
6. store with the expected revision.

An update repeats all of it if another writer was faster (`modify`): admission has decided about an
object that no longer exists. Writers of one object take turns, and one may build on the queued
write of another (`write_chains.py`). This only saves work. Correctness comes from the store's
compare-and-swap, which also covers writers without a turn, such as the expiry of objects.

Steps that take time in proportion to the body run in a thread (`long_work`). They are pure; code
that touches the cache, locks or admission stays on the event loop.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import eq
from random import Random
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kedge.api import metadata
from kedge.api.ineffective_fields import warnings_of
from kedge.api.model import ManagedFieldsEntry, Object, ObjectMeta
from kedge.api.resource import Resource
from kedge.apiserver import managed, prepare
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.allocation.ledger import AllocationRaced
from kedge.apiserver.api import Api, encoded, gone, live_document, new_stored_bytes
from kedge.apiserver.builtin_versions import versions_of
from kedge.apiserver.object_versions import ConversionNeeded, ObjectVersions
from kedge.apiserver.pod_templates import NamelessPod, may_have_template
from kedge.apiserver.request import Request, dry_run, field_manager, stored
from kedge.apiserver.verbs import decode
from kedge.apiserver.verbs.patches import DesiredDocument, Patch, PatchScope, patch_sort, read_patch
from kedge.apiserver.verbs.read import shown_object
from kedge.apiserver.watchcache import Item
from kedge.apiserver.write_chains import QueuedObject
from kedge.machinery import extensions, names
from kedge.machinery.errors import (
    ErrorScope,
    FieldError,
    StatusError,
    already_exists,
    conflict,
    enough,
    invalid,
    quoted,
)
from kedge.storage.store import RevisionConflict
from kedge.web.message import Response

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
NAME_TRIES = 8
_ANY_VERSION = ("", "0")
"""The resourceVersions of an update that fits any version of the object."""

Result = TypeVar("Result")
Change = Callable[[dict[str, Any]], DesiredDocument]
"""Makes the desired document from the live one."""


class ObjectPart(msgspec.Struct, frozen=True):
    """The part of an object that an endpoint may change."""

    subresource: str
    take: Callable[[Resource[Any], Object, Object], Object]
    """(resource, new, old): returns the old object with the part of the new one."""
    validate: Callable[[Resource[Any], Object, Object], Iterator[FieldError]]
    ignored: Callable[[Resource[Any]], dict[str, Any]]
    """The fields whose ownership this endpoint does not track."""
    shown: Callable[[Resource[Any], Object], Object | None] | None = None
    """Returns what admission sees instead of the object, and cannot change; None to skip it."""
    counts: bool = True
    """Whether a change of the desired state raises the generation."""


def _take_main(resource: Resource[Any], new: Object, old: Object) -> Object:
    taken: Object = resource.strategy.prepare_for_update(
        prepare.with_status_of(resource, new, old), old
    )
    return taken


def _validate_main(resource: Resource[Any], new: Object, old: Object) -> Iterator[FieldError]:
    yield from _metadata_update_errors(resource, new, old, resource.metadata_checks.main)
    yield from resource.strategy.validate(new)
    yield from resource.strategy.validate_update(new, old)


def _take_status(resource: Resource[Any], new: Object, old: Object) -> Object:
    # The new metadata, because a write to the status may change labels and annotations, too.
    whole = replace(prepare.with_status_of(resource, old, new), metadata=new.metadata)
    taken: Object = resource.strategy.prepare_for_status_update(whole, old)
    return taken


def _validate_status(resource: Resource[Any], new: Object, old: Object) -> Iterator[FieldError]:
    yield from _metadata_update_errors(resource, new, old, resource.metadata_checks.status)
    yield from resource.strategy.validate_status(new, old)


def _metadata_update_errors(
    resource: Resource[Any], new: Object, old: Object, checks: str
) -> Iterator[FieldError]:
    """Yield the errors of changed metadata, each as often as upstream's checks find it."""
    whole = list(_metadata_errors(resource, new.metadata, names.path_segment, names.finalizer))
    # Sound parts are looked at once.
    meta = new.metadata if whole else metadata.without_sound_parts(new.metadata)
    change = list(metadata.validate_update(meta, old.metadata))
    yield from whole
    yield from change
    finalizers = list(_finalizer_errors(resource, meta))
    for check in checks:
        if check == "U":
            yield from change
            yield from finalizers
        else:
            yield from _metadata_errors(
                resource, meta, resource.strategy.check_name, _rule(resource)
            )


def _finalizer_errors(resource: Resource[Any], meta: ObjectMeta) -> Iterator[FieldError]:
    if not resource.metadata_checks.any_finalizer:
        yield from metadata.standard_finalizers(meta.finalizers)


def _rule(resource: Resource[Any]) -> names.Rule:
    """Return the rule for finalizers in the code of the kind."""
    return names.finalizer if resource.metadata_checks.any_finalizer else names.core_finalizer


def all_but_status(resource: Resource[Any]) -> dict[str, Any]:
    """Return the fields whose owners a write to the status does not change."""
    if resource.custom:
        # Other fields of the first level are not written either, but upstream tracks them.
        return {"f:metadata": {}, "f:spec": {}}
    return {f"f:{name}": {} for name in resource.schema.fields if name not in _STATUS_WRITES}


def only_status(resource: Resource[Any]) -> dict[str, Any]:
    """Return the fields whose owners a write to the main resource does not change."""
    return {"f:status": {}} if resource.has_status else {}


_STATUS_WRITES = ("status", "metadata")

MAIN = ObjectPart("", _take_main, _validate_main, only_status)
STATUS = ObjectPart("status", _take_status, _validate_status, all_but_status, counts=False)


# Create.


async def create(api: Api, request: Request) -> Response:
    """Create an object."""
    if may_have_template(request):
        return await _create_pod(api, request)
    document = await decode.posted(api, request, "CreateOptions")
    item = await create_object(api, request, DesiredDocument(document))
    return await shown_object(api, request, item, 201)


async def _create_pod(api: Api, request: Request) -> Response:
    """Create a pod. If it equals an admitted one in all but its name, store it as that one."""
    content = await decode.read(api, request, "CreateOptions")
    posted = content.document
    template = None if content.duplicates else api.pod_templates.nameless(request, posted)
    if template is not None and (item := await _store_alike(api, request, template, posted)):
        return await shown_object(api, request, item, 201)
    document = decode.of_content(request, content, "CreateOptions")
    item = await create_object(api, request, DesiredDocument(document), template)
    return await shown_object(api, request, item, 201)


async def _store_alike(
    api: Api, request: Request, template: NamelessPod, document: Mapping[str, Any]
) -> Item | None:
    """Store a pod as an admitted one with another name; None if none equals it. Plugins that count
    are asked about each pod."""
    name = document["metadata"].get("name", "")
    for left in range(NAME_TRIES, 0, -1):
        new = api.pod_templates.find(template, name, api.clock.now(), api.random)
        if new is None:
            return None
        request.name = new.pod.metadata.name
        attempt = Attempt(request, "CREATE", new.pod, weight=len(new.value))
        try:
            await api.admission.count(attempt)
            item = await _store_new(api, request, new.value, dry=False)
        except StatusError as error:
            if not (left > 1 and not name and error.reason == "AlreadyExists"):
                raise
            request.name = ""
        else:
            request.warnings += new.warnings
            request.annotations |= new.annotations
            return item
        finally:
            api.admission.release(request)
    raise AssertionError("unreachable")


async def create_object(
    api: Api, request: Request, wanted: DesiredDocument, template: NamelessPod | None = None
) -> Item:
    """Store a fitted document as a new object. `template` is that of a pod that others may
    equal."""
    dry = dry_run(request, "CreateOptions")
    manager = field_manager(request, "CreateOptions")
    request.warnings += _ineffective(request.resource, wanted)
    generated = not (wanted.document.get("metadata") or {}).get("name") and not request.name
    for left in range(NAME_TRIES, 0, -1):
        try:
            value = await _admitted(api, request, wanted, manager, template)
            # As late as upstream's store finds it: admission may have a better reason to refuse.
            if not dry and request.verb == "create":
                prepare.check_unversioned(wanted.document)
            return await _store_new(api, request, value, dry)
        except AllocationRaced:
            if left == 1:
                raise
            # Another server was faster: choose again.
        except StatusError as error:
            if not (generated and left > 1 and error.reason == "AlreadyExists"):
                raise
            request.name = ""
        finally:
            api.admission.release(request)
    raise AssertionError("unreachable")


def _ineffective(resource: Resource[Any], wanted: DesiredDocument) -> Sequence[str]:
    """Return the warnings about fields that are stored and have no effect."""
    return () if resource.custom else warnings_of(resource.kind, wanted.document)


async def _admitted(
    api: Api,
    request: Request,
    wanted: DesiredDocument,
    manager: str,
    template: NamelessPod | None,
) -> bytes:
    """Return a posted document as the bytes to store."""
    resource = request.resource
    weight = len(request.http.body)
    now, random = api.clock.now(), api.random
    obj, owners = await api.long_work.run(weight, new_object, request, wanted, manager, now, random)
    request.name = obj.metadata.name
    admitted = await api.admission.mutate(Attempt(request, "CREATE", obj, weight=weight))
    assert admitted is not None
    begun = resource.strategy.prepare_for_create(admitted)
    request.name = begun.metadata.name
    effort = weight * resource.strategy.validation_cost()
    await api.long_work.run(effort, _validate_new, api, request, begun, obj.metadata.name)
    await api.admission.validate(Attempt(request, "CREATE", begun, weight=weight))
    value = await api.long_work.run(weight, new_stored_bytes, resource, begun, owners)
    if template is not None:
        api.pod_templates.keep(template, request, begun, owners, value)
    return value


def new_object(
    request: Request, wanted: DesiredDocument, manager: str, now: datetime, random: Random
) -> tuple[Object, Sequence[ManagedFieldsEntry]]:
    """Return a posted document as an object, with the fields that the server sets and managed
    fields."""
    resource = request.resource
    posted = prepare.with_distinct_owners(request, decode.to_object(resource, wanted.document))
    obj = resource.strategy.default(prepare.new(request, posted, now, random))
    # Before admission: fields that plugins add have no manager, so an apply does not conflict
    # with them.
    return obj, _owners_from_birth(resource, obj, manager, wanted.applied)


def _validate_new(api: Api, request: Request, new: Object, name: str) -> None:
    resource = request.resource
    errors = enough(
        chain(
            _metadata_errors(resource, new.metadata, resource.strategy.check_name, _rule(resource)),
            resource.strategy.validate(new),
            resource.strategy.validate_new(new),
        )
    )
    if errors:
        _judge(api, request, name, errors)
    # Before those of validating admission, as upstream does.
    request.warnings += resource.strategy.warnings(new)


def _judge(
    api: Api,
    request: Request,
    name: str,
    errors: list[FieldError],
    known: Iterable[FieldError] = (),
) -> None:
    """Refuse an invalid object, and warn about extensions that only kedge has.

    Errors that Kubernetes would report and kedge does not are allowed if the old object has them
    already (`known`): it was stored before the server was started without extensions."""
    request.warnings += [str(error) for error in errors if error.scope is ErrorScope.RATCHETED]
    allowed = {error for error in known if error.scope is not None}
    counting, used = extensions.sorted_out(
        (error for error in errors if error not in allowed),
        upstream_only=api.catalog.upstream_only,
    )
    if counting:
        # A kind that is stored as another one is validated as that one.
        home = stored(request.resource)
        raise invalid(home.group, home.kind, name, counting)
    request.warnings += dict.fromkeys(map(extensions.warning, used))


def _metadata_errors(
    resource: Resource[Any], meta: ObjectMeta, check_name: names.Rule, check_finalizer: names.Rule
) -> Iterator[FieldError]:
    return metadata.validate(
        meta,
        namespaced=resource.namespaced,
        check_name=check_name,
        check_finalizer=check_finalizer,
    )


def _admitted_document(
    resource: Resource[Any], admitted: Object, owned: dict[str, Any]
) -> dict[str, Any]:
    """Return the document of an object that admission changed, with the owners from before."""
    document = resource.to_document(admitted)
    if "managedFields" in owned["metadata"]:
        document["metadata"]["managedFields"] = owned["metadata"]["managedFields"]
    else:
        document["metadata"].pop("managedFields", None)
    return document


def _owners_from_birth(
    resource: Resource[Any], obj: Object, manager: str, applied: bool
) -> Sequence[ManagedFieldsEntry]:
    """Return the managedFields of a new object."""
    meta = obj.metadata
    if applied:
        return meta.managedFields
    if meta.managedFields:
        entries = managed.after_update(
            resource.schema,
            None,
            resource.to_document(obj),
            manager=manager,
            api_version=resource.api_version,
            now=meta.creationTimestamp,
            ignore=MAIN.ignored(resource),
        )
        return msgspec.convert(entries, list[ManagedFieldsEntry])
    owned = managed.of_new(resource.schema, encoded(_ownable(resource, obj)))
    if owned is None:
        return ()
    return [
        ManagedFieldsEntry(
            manager=manager,
            operation="Update",
            apiVersion=resource.api_version,
            time=meta.creationTimestamp,
            fieldsType="FieldsV1",
            fieldsV1=owned,
        )
    ]


def _ownable(resource: Resource[Any], obj: Object) -> Object:
    """Return an object without fields that have no owner, and without values that do not matter."""
    meta = obj.metadata
    named = ObjectMeta(
        generateName=meta.generateName,
        labels=dict.fromkeys(meta.labels, ""),
        annotations=dict.fromkeys(meta.annotations, ""),
        ownerReferences=meta.ownerReferences,
        finalizers=meta.finalizers,
    )
    return replace(prepare.without_status(resource, obj), metadata=named)


async def _store_new(api: Api, request: Request, value: bytes, dry: bool) -> Item:
    resource, key = request.resource, request.key
    present = api.cache_of(resource).get(key)
    if present is not None:
        raise _exists(resource, request.name, present)
    if dry:
        return Item(key, 0, value)
    try:
        return await api.put_bytes(resource, key, value, None)
    except RevisionConflict as race:
        # An apply looks for the object next, and would not find it before the cache has it.
        await api.caught_up(race)
        raise already_exists(resource.group, resource.plural, request.name) from None


def _exists(resource: Resource[Any], name: str, present: Item) -> StatusError:
    deleting = "object is being deleted" if present.identity.deletion_timestamp else ""
    return already_exists(resource.group, resource.plural, name, deleting)


# Update.


async def update(api: Api, request: Request) -> Response:
    """Replace an object by the one in the body."""
    document = await decode.posted(api, request, "UpdateOptions")
    item, created = await update_document(api, request, document, MAIN)
    return await shown_object(api, request, item, 201 if created else 200)


async def update_document(
    api: Api, request: Request, document: dict[str, Any], part: ObjectPart
) -> tuple[Item, bool]:
    """Replace an object (or the part of it that an endpoint may change) by a fitted document."""
    resource = request.resource
    meta = document.setdefault("metadata", {})
    prepare.place(request, _identity(meta))
    if api.find(request) is None:
        if not (resource.strategy.allows_create_on_update and part is MAIN):
            raise gone(request)
        if uid := meta.get("uid"):
            # A client that has read the object does not want another one in its place.
            raise prepare.other_uid(request, uid, "")
        return await create_object(api, request, DesiredDocument(document)), True
    item = await modify(
        api, request, lambda live: DesiredDocument(document), part, "UpdateOptions", may_chain=True
    )
    return item, False


def _check_conditional(
    request: Request, meta: dict[str, Any], live: dict[str, Any], part: ObjectPart
) -> None:
    """Refuse an object without a resourceVersion if its kind must have one in an update."""
    resource = request.resource
    if resource.strategy.allows_unconditional_update or part.subresource not in ("", "status"):
        return
    if meta.get("uid", "") not in ("", live["metadata"]["uid"]):
        return  # which is refused first
    if meta.get("resourceVersion", "") in _ANY_VERSION:
        error = FieldError.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        # Upstream names the resource here, where it names the kind elsewhere.
        raise invalid(resource.group, resource.plural, request.name, [error])


def _identity(meta: dict[str, Any]) -> ObjectMeta:
    return ObjectMeta(name=meta.get("name", ""), namespace=meta.get("namespace", ""))


async def modify(
    api: Api,
    request: Request,
    change: Change,
    part: ObjectPart,
    options: str,
    *,
    may_chain: bool = False,
) -> Item:
    """Change the live object; starts again with the newer object if another writer was faster.

    `may_chain` lets the change build on a write that is not committed yet (`WriteChains`). The
    result must not depend on the version of the live object."""
    write = Modification(
        request,
        change,
        part,
        dry_run(request, options),
        field_manager(request, options),
        may_chain and _may_chain(request.resource),
    )
    warnings, annotations = tuple(request.warnings), dict(request.annotations)
    raced = 0
    while True:
        try:
            async with api.chains.turn(request.key):
                begun = await _begun_on_queued(api, write) or await _begun(api, write)
            return begun if isinstance(begun, Item) else await api.outcome(request.resource, begun)
        except RevisionConflict as race:
            await api.caught_up(race)
        except AllocationRaced:
            raced += 1
            if raced == NAME_TRIES:
                raise
        finally:
            api.admission.release(request)
        _forget_findings(request, warnings, annotations)


def _forget_findings(
    request: Request, warnings: Sequence[str], annotations: Mapping[str, str]
) -> None:
    """Leave a request only the warnings and annotations from before an attempt. In place, because
    requests that are made of it share them."""
    request.warnings[:] = warnings
    request.annotations.clear()
    request.annotations.update(annotations)


class Modification(msgspec.Struct, frozen=True):
    """A change of a live object that a request wants."""

    request: Request
    change: Change
    part: ObjectPart
    dry: bool
    manager: str
    may_chain: bool
    """Whether it may build on a write that is not committed, and others on it."""


def _may_chain(resource: Resource[Any]) -> bool:
    """Whether writes of a resource may build on ones that are not committed. Rules of custom kinds
    and webhooks that convert them would see the unknown version."""
    return not resource.custom and resource.strategy.allows_unconditional_update


class _NeedsStored(Exception):
    """The write cannot build on a queued one."""


async def _begun_on_queued(api: Api, write: Modification) -> QueuedObject | None:
    """Queue a change of the state that a queued write will store; None if there is no such state,
    or if the change needs one that is stored.

    Every outcome but a further write is found out again from the stored state: an error may be due
    to the unknown version, and an answer must not show what is not committed."""
    request = write.request
    if not write.may_chain or write.dry or not api.chains.are_possible:
        return None
    before = api.chains.last(request.key)
    if before is None:
        return None
    warnings, annotations = tuple(request.warnings), dict(request.annotations)
    try:
        begun = await _attempted(api, write, before.item(), before)
    except (StatusError, AllocationRaced, _NeedsStored):
        api.admission.release(request)
        _forget_findings(request, warnings, annotations)
        return None
    assert isinstance(begun, QueuedObject)
    return begun


async def _begun(api: Api, write: Modification) -> Item | QueuedObject:
    """Change the stored object, and store or queue the result."""
    await api.chains.settled(write.request.key)
    item = api.find(write.request)
    if item is None:
        raise gone(write.request)
    return await _attempted(api, write, item, None)


async def _attempted(
    api: Api, write: Modification, item: Item, before: QueuedObject | None
) -> Item | QueuedObject:
    """Change an item, and store or queue the result; raises _NeedsStored if the item is a queued
    state, `before`, and the result is no further write or depends on the version."""
    request = write.request
    is_current = _is_current(request.resource, item)
    item = await api.own_version(request.resource, item)
    size, stored = len(request.http.body), len(item.body)
    live = await api.long_work.run(stored, live_document, request.resource, item)
    wanted = await _converting(api, size and size + stored, write.change, live)
    new = await _changed(api, request, live, wanted, write.part, write.manager, stored)
    same = is_current and await api.long_work.run(stored, eq, new, live)
    if before is not None and same:
        raise _NeedsStored
    if same and (write.dry or not await api.is_stale(item)):
        request.is_unchanged = True
        return item
    if write.dry:
        return Item(item.key, item.revision, _unstored_bytes(request.resource, new))
    return await _store_changed(api, write, item, new, before)


async def _converting(api: Api, weight: int, work: Callable[..., Result], *args: Any) -> Result:
    """Return the result of work that may need objects in other versions."""
    while True:
        try:
            return await api.long_work.run(weight, work, *args)
        except ConversionNeeded as need:
            await need.meet()


def _is_current(resource: Resource[Any], item: Item) -> bool:
    """Whether an object is stored as it would be now. A write that changes nothing stores others
    again, which is how a client migrates them to another storage version or encryption key."""
    return resource.conversion is None or resource.conversion.is_stored_form(item)


async def _changed(
    api: Api,
    request: Request,
    live: dict[str, Any],
    wanted: DesiredDocument,
    part: ObjectPart,
    manager: str,
    size: int,
) -> dict[str, Any]:
    """Return the document to store, after defaulting, admission and validation."""
    resource = request.resource
    meta = wanted.document.get("metadata") or {}
    prepare.place(request, _identity(meta))
    _check_version(request, wanted.document, live)
    _check_conditional(request, meta, live, part)
    weight = len(request.http.body) + size
    versions = versions_of(resource)
    old, new, document = await _converting(
        api, weight, _updated, api, request, live, wanted, part, manager, versions
    )
    attempt = _attempt(request, part, new, old, weight)
    admitted = new if attempt is None else await api.admission.mutate(attempt)
    if part.shown is not None:
        admitted = new
    assert admitted is not None
    if admitted is not new:
        # A plugin can change no more than the client: only the part of this endpoint.
        admitted = part.take(resource, admitted, old)
    effort = weight * resource.strategy.validation_cost()
    await api.long_work.run(effort, _validate_update, api, request, part, admitted, old)
    if not part.subresource:
        request.warnings += _ineffective(resource, wanted)
    attempt = _attempt(request, part, admitted, old, weight)
    if attempt is not None:
        await api.admission.validate(attempt)
    if admitted is not new:
        document = _admitted_document(resource, admitted, document)
    if part.counts and (generation := prepare.next_generation(resource, document, live)):
        document["metadata"]["generation"] = generation
    return document


def _updated(
    api: Api,
    request: Request,
    live: dict[str, Any],
    wanted: DesiredDocument,
    part: ObjectPart,
    manager: str,
    versions: ObjectVersions | None,
) -> tuple[Object, Object, dict[str, Any]]:
    """Return the object before and after the change, and the latter's document with managed
    fields."""
    resource = request.resource
    old = decode.to_object(resource, live)
    sent = prepare.with_distinct_owners(request, decode.to_object(resource, wanted.document))
    new = prepare.updated(request, sent, old)
    new = part.take(resource, resource.strategy.default(new), old)
    if wanted.applied:
        return old, new, _without_empty_owners(resource.to_document(new))
    document = _owned_after(api, resource, new, live, part, manager, versions)
    return old, new, document


def _validate_update(
    api: Api, request: Request, part: ObjectPart, new: Object, old: Object
) -> None:
    errors = enough(part.validate(request.resource, new, old))
    if errors:
        known = part.validate(request.resource, old, old) if api.catalog.upstream_only else ()
        _judge(api, request, request.name, errors, known)
    strategy = request.resource.strategy
    if not part.subresource and strategy.warns_on_update(new, old):
        request.warnings += strategy.warnings(new)


def _attempt(
    request: Request, part: ObjectPart, new: Object, old: Object, weight: int
) -> Attempt | None:
    if part.shown is None:
        return Attempt(request, "UPDATE", new, old, weight)
    shown = part.shown(request.resource, new)
    if shown is None:
        return None
    return Attempt(request, "UPDATE", shown, part.shown(request.resource, old), weight)


def _owned_after(
    api: Api,
    resource: Resource[Any],
    new: Object,
    live: dict[str, Any],
    part: ObjectPart,
    manager: str,
    versions: ObjectVersions | None,
) -> dict[str, Any]:
    """Return the changed object with managedFields."""
    document = resource.to_document(new)
    document["metadata"]["managedFields"] = managed.after_update(
        resource.schema,
        live,
        document,
        manager=manager,
        api_version=resource.api_version,
        subresource=part.subresource,
        now=api.timestamp(),
        ignore=part.ignored(resource),
        versions=versions,
    )
    return _without_empty_owners(document)


def _without_empty_owners(document: dict[str, Any]) -> dict[str, Any]:
    meta = document["metadata"]
    if not meta.get("managedFields"):
        meta.pop("managedFields", None)
    return document


async def _store_changed(
    api: Api,
    write: Modification,
    item: Item,
    document: dict[str, Any],
    before: QueuedObject | None,
) -> Item | QueuedObject:
    """Write the change, or delete an object that waited only for its finalizers."""
    request, resource = write.request, write.request.resource
    weight = len(request.http.body) + len(item.body)
    goes = may_go(resource, document)
    may_queue = write.may_chain and api.chains.are_possible and not api.admission.holds(request)
    if may_queue and not goes:
        return await api.queue_put(resource, document, item, weight, before)
    if before is not None:
        raise _NeedsStored
    if goes:
        await api.delete(resource, item)
        return Item(item.key, item.revision, _unstored_bytes(resource, document))
    return await api.put(resource, document, item, weight)


def _unstored_bytes(resource: Resource[Any], document: dict[str, Any]) -> bytes:
    """Return the bytes of a document that is answered and not stored, in the stored version."""
    if resource.relabelling is not None:
        document = resource.relabelling.to_stored(document)
    return msgspec.json.encode(document)


def may_go(resource: Resource[Any], document: dict[str, Any]) -> bool:
    """Whether deletion was asked for and nothing holds the object any more."""
    meta = document["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if meta.get("deletionGracePeriodSeconds"):
        return False
    return not resource.strategy.blocks_deletion(resource.from_document(document))


def _check_version(request: Request, wanted: dict[str, Any], live: dict[str, Any]) -> None:
    meta = wanted.get("metadata", {})
    version = meta.get("resourceVersion", "")
    if meta.get("uid") and meta["uid"] != live["metadata"]["uid"]:
        return  # another object, which is refused first
    if version not in _ANY_VERSION and version != live["metadata"]["resourceVersion"]:
        if not version.isdecimal():
            # The store of upstream parses the version, and its error is not translated.
            raise StatusError(
                500, "", f"strconv.ParseUint: parsing {quoted(version)}: invalid syntax"
            )
        raise conflict(request.resource.group, request.resource.plural, request.name, MODIFIED)


# Patch.


async def patch(api: Api, request: Request) -> Response:
    """Apply a patch to an object."""
    item, created = await patch_part(api, request, MAIN)
    return await shown_object(api, request, item, 201 if created else 200)


async def patch_part(api: Api, request: Request, part: ObjectPart) -> tuple[Item, bool]:
    """Apply the patch in the body to the part of an object that an endpoint may change."""
    check_patchable(api, request)
    change = await api.long_work.run(len(request.http.body), read_patch, request)
    versions = versions_of(request.resource)
    while True:
        if api.find(request) is None and change.may_create and part is MAIN:
            created = await _create_by_apply(api, request, change, part)
            if created is not None:
                return created, True

        def produce(live: dict[str, Any]) -> DesiredDocument:
            scope = PatchScope(part.subresource, part.ignored, api.timestamp(), versions)
            return change.produce(live, scope)

        try:
            item = await modify(
                api, request, produce, part, "PatchOptions", may_chain=change.is_versionless
            )
            return item, False
        except StatusError as error:
            if not (error.code == 404 and change.may_create and part is MAIN):
                raise


def check_patchable(api: Api, request: Request) -> None:
    """Refuse a patch of a missing object, unless it is an apply: 404 comes before an error of the
    body, but after those of the options."""
    if api.find(request) is None and patch_sort(request) != "apply":
        raise gone(request)


async def _create_by_apply(
    api: Api, request: Request, change: Patch, part: ObjectPart
) -> Item | None:
    """Create an object by apply; None if another client created it meanwhile."""
    resource = request.resource
    wanted = await api.long_work.run(
        len(request.http.body),
        change.produce,
        None,
        PatchScope(part.subresource, part.ignored, api.timestamp()),
    )
    uid = wanted.document["metadata"].get("uid")
    if uid:
        why = (
            f"uid mismatch: the provided object specified uid {uid}, "
            "and no existing object was found"
        )
        raise conflict(resource.group, resource.plural, request.name, why)
    try:
        return await create_object(api, request, wanted)
    except StatusError as error:
        if error.reason == "AlreadyExists":
            return None
        raise
