"""Delete and deletecollection: at once, after a grace period, or with the last finalizer.

A delete either removes the object or marks it with a deletionTimestamp. It marks the object if a
grace period runs, if finalizers remain, or if the kind itself waits for something (a namespace for
its contents). The object then goes with the write that takes away the last reason: `write.may_go`
decides that after every update. So there are two places that remove objects, and both look at the
same three reasons. The mark is never taken back, and a later delete can only shorten the grace
period, as upstream has it: a controller that saw the mark may rely on it.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from kedge.api.model import Object
from kedge.api.options import DeleteOptions, Preconditions
from kedge.api.resource import Resource
from kedge.api.strategy import no_grace_period
from kedge.apiserver import body, render
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.api import Api, gone, live_document
from kedge.apiserver.request import Request, check_dry_run, integer, list_numbers
from kedge.apiserver.verbs import decode, type_meta
from kedge.apiserver.verbs.read import read_page, shown_object, shown_objects
from kedge.apiserver.verbs.selection import selected
from kedge.apiserver.watchcache import Item
from kedge.machinery.durations import format_time, parse_time
from kedge.machinery.errors import FieldError, StatusError, bad_request, conflict, invalid_options
from kedge.machinery.shape import TypeMismatch, fit
from kedge.storage.store import RevisionConflict
from kedge.web.message import Response, warning_headers

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
POLICIES = ("Foreground", "Background", "Orphan")
END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


async def delete(api: Api, request: Request) -> Response:
    """Delete one object."""
    options = read_options(request)
    item, removed = await delete_object(api, request, options)
    if not removed or request.resource.strategy.returns_deleted_object:
        return await shown_object(api, request, item)
    meta = item.identity
    details = {
        "name": meta.name,
        "group": request.resource.group,
        "kind": request.resource.plural,
        "uid": meta.uid,
    }
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
    response = render.status(request.http, status, 200)
    response.headers += warning_headers(request.warnings)
    return response


async def delete_collection(api: Api, request: Request) -> Response:
    """Delete the selected objects, or a page of them; return them as they were before."""
    list_numbers(request.query)
    selected(request)
    options = read_options(request)
    check_dry_run(list(options.dryRun), "DeleteOptions")
    page = await read_page(api, request)
    for item in page.items:
        # A dry run waits for nothing, so thousands of objects would be deleted in one turn.
        await api.clock.give_way()
        one = _request_for(request, item)
        try:
            await delete_object(api, one, options)
        except StatusError as error:
            if error.code != 404:
                raise
    response = shown_objects(api, request, page.items, page.meta)
    response.headers += warning_headers(request.warnings)
    return response


def _request_for(request: Request, item: Item) -> Request:
    name = item.key.rpartition("/")[2]
    namespace = item.key.split("/")[-2] if request.resource.namespaced else ""
    # Warnings and annotations stay the same lists: they belong to the response and its audit event.
    return replace(request, verb="delete", namespace=namespace, name=name)


async def delete_object(api: Api, request: Request, options: DeleteOptions) -> tuple[Item, bool]:
    """Delete one object or mark it; returns its last state and whether it is gone."""
    dry = check_dry_run(list(options.dryRun), "DeleteOptions")
    async with api.locked(request.key):
        while True:
            item = api.find(request)
            if item is None:
                raise gone(request)
            resource = request.resource
            item = await api.own_version(resource, item)
            size = len(item.body)
            live = await api.long_work.run(size, live_document, resource, item)
            check_preconditions(request, live, options.preconditions)
            obj = await api.long_work.run(size, resource.from_document, live)
            if not request.subresource:  # an eviction was admitted as such
                attempt = Attempt(request, "DELETE", None, obj, size)
                await api.admission.mutate(attempt)
                await api.admission.validate(attempt)
            try:
                return await _begin_or_finish(api, request, item, obj, options, dry=dry)
            except RevisionConflict as race:
                await api.caught_up(race)


async def _begin_or_finish(
    api: Api, request: Request, item: Item, obj: Object, options: DeleteOptions, *, dry: bool
) -> tuple[Item, bool]:
    resource = request.resource
    grace = _grace(resource, obj, options)
    finalizers = _finalizers(request, obj, options)
    ends_now = grace == 0 and not finalizers and not resource.strategy.blocks_deletion(obj)
    if ends_now and resource.strategy.grace_period is no_grace_period:
        return item if dry else await api.delete(resource, item), True
    document, is_same = await api.long_work.run(
        len(item.body), _marked, api, resource, item, obj, grace, finalizers
    )
    if dry:
        marked = item.body if is_same else msgspec.json.encode(document)
        return Item(item.key, item.revision, marked), ends_now
    if not is_same:
        item = await api.put(resource, document, item, len(item.body))
    # An object that may have a grace period is marked even if it ends now, as upstream: watchers
    # see its deletionTimestamp in an event of its own. If the server dies in between, the next
    # deletion finds the mark and goes on from here.
    return await api.delete(resource, item) if ends_now else item, ends_now


def _marked(
    api: Api, resource: Resource[Any], item: Item, obj: Object, grace: int, finalizers: list[str]
) -> tuple[dict[str, Any], bool]:
    """Return the marked document, and whether it is the stored one already."""
    document = _terminating(api, resource, obj, grace, finalizers)
    return document, document == live_document(resource, item)


def _terminating(
    api: Api, resource: Resource[Any], obj: Object, grace: int, finalizers: list[str]
) -> dict[str, Any]:
    """Return the marked document. A second request can only bring the end nearer."""
    document = resource.to_document(obj)
    meta = document["metadata"]
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    known = obj.metadata.deletionGracePeriodSeconds
    if not obj.metadata.deletionTimestamp:
        meta["deletionTimestamp"] = format_time(_after(api.clock.now(), grace))
        meta["deletionGracePeriodSeconds"] = grace
        if obj.metadata.generation > 0:
            meta["generation"] = obj.metadata.generation + 1
    elif known is not None and grace < known:
        end, grace = _nearer(obj.metadata.deletionTimestamp, known, grace, api.clock.now())
        meta["deletionTimestamp"] = format_time(end)
        meta["deletionGracePeriodSeconds"] = grace
    return resource.to_document(
        resource.strategy.prepare_for_delete(resource.from_document(document))
    )


def _after(moment: datetime, seconds: int) -> datetime:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return END_OF_TIME


def _nearer(end: str, known: int, grace: int, now: datetime) -> tuple[datetime, int]:
    """Return the end and the grace period, counted from the first request but never in the past."""
    try:
        end_then = parse_time(end) - timedelta(seconds=known - grace)
    except OverflowError:
        end_then = _after(now, grace)
    # A period that is over becomes one second and not none: the kubelet, not this request, removes
    # the pod once its containers have stopped.
    return (end_then, grace) if end_then >= now else (now, min(grace, 1))


def _grace(resource: Resource[Any], obj: Object, options: DeleteOptions) -> int:
    asked = options.gracePeriodSeconds
    if asked is not None and asked < 0:
        asked = 1
    known = obj.metadata.deletionGracePeriodSeconds
    if not obj.metadata.deletionTimestamp or known is None:
        return resource.strategy.grace_period(obj, asked)
    return known if asked is None else min(resource.strategy.grace_period(obj, asked), known)


def _finalizers(request: Request, obj: Object, options: DeleteOptions) -> list[str]:
    """Return the finalizers, with the one that stands for the propagation policy."""
    policy = options.propagationPolicy
    if options.orphanDependents is not None:
        policy = "Orphan" if options.orphanDependents else "Background"
    own = list(obj.metadata.finalizers)
    strategy = request.resource.strategy
    if strategy.ignores_propagation or strategy.blocks_deletion(obj):
        return own
    if policy is None:
        if not request.resource.strategy.orphans_dependents or ORPHAN in own or FOREGROUND in own:
            return own
        policy = "Orphan"
        if request.resource.strategy.orphan_warning:
            request.warnings.append(request.resource.strategy.orphan_warning)
    kept = [name for name in own if name not in (ORPHAN, FOREGROUND)]
    extra = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(policy, [])
    return kept + extra


def check_preconditions(
    request: Request, document: dict[str, Any], wanted: Preconditions | None
) -> None:
    """Refuse with 409 a live object that does not meet the preconditions."""
    if wanted is None:
        return
    meta = document["metadata"]
    for name, word, fate in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        asked = getattr(wanted, name)
        if asked is not None and asked != meta[name]:
            why = (
                f"the {word} in the precondition ({asked}) does not match the {word} in record "
                f"({meta[name]}). The object might have been {fate}"
            )
            raise conflict(request.resource.group, request.resource.kind, request.name, why)


def read_options(request: Request) -> DeleteOptions:
    """Return the DeleteOptions in the body, or else in the query, which counts only without one."""
    data = request.http.body
    if data:
        document = body.read_small(request.http.headers.get("content-type", ""), data).document
        type_meta.check_delete_options(document)
    else:
        document = _from_query(request)
    return to_options(document)


def to_options(document: Any) -> DeleteOptions:
    """Return DeleteOptions from a document; raises 400 or 422."""
    try:
        options = msgspec.convert(_fitted(document), DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"cannot read DeleteOptions: {error}") from None
    check_options(options)
    return options


def _fitted(document: Any) -> Any:
    """Return the declared fields; raises 400 in upstream's words about one of another type."""
    if not isinstance(document, dict) or not document:
        return document
    # Imported here because few deletes have options.
    from kedge.api.builtin.schemas import known

    schema = known("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
    assert schema is not None
    try:
        return fit(schema, document, [])
    except TypeMismatch as misfit:
        decode.name_types(misfit)
        raise bad_request(str(misfit)) from None


def _from_query(request: Request) -> dict[str, Any]:
    query = request.query
    document: dict[str, Any] = {}
    if (seconds := integer(query, "gracePeriodSeconds")) is not None:
        document["gracePeriodSeconds"] = seconds
    if dry := query.all("dryRun"):
        document["dryRun"] = dry
    if policy := query.get("propagationPolicy"):
        document["propagationPolicy"] = policy
    if "orphanDependents" in query:
        document["orphanDependents"] = query.flag("orphanDependents")
    return document


def check_options(options: DeleteOptions) -> None:
    errors = []
    policy = options.propagationPolicy
    if policy is not None and policy not in POLICIES:
        errors.append(FieldError.not_supported("propagationPolicy", policy, [*POLICIES, "nil"]))
    if policy and options.orphanDependents is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(FieldError.invalid("propagationPolicy", policy, why))
    if errors:
        raise invalid_options("DeleteOptions", errors)
