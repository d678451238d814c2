"""pods/eviction: a delete that respects disruption budgets."""

from typing import Any, Final

from msgspec.structs import replace

from kedge.api.options import DeleteOptions, Preconditions
from kedge.apiserver import body, render
from kedge.apiserver.api import Api, gone
from kedge.apiserver.request import Request, check_dry_run
from kedge.apiserver.subresources.binding import SUCCESS, admit_posted
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.delete import check_preconditions, delete_object, to_options
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.apiserver.verbs.write import ObjectPart
from kedge.apiserver.watchcache import Item
from kedge.machinery.errors import (
    FieldError,
    StatusCause,
    StatusError,
    bad_request,
    forbidden,
    invalid,
)
from kedge.machinery.selectors import labels_from_object
from kedge.web.message import Response

ENDED: Final = ("Succeeded", "Failed")
TRIES: Final = 20
MOST_DISRUPTED: Final = 2000
"""How many evicted pods a budget may list before the disruption controller has confirmed them."""
LOOK_AGAIN: Final = 10
"""Seconds after which to ask again when a budget is not up to date."""
BLOCKED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
ALLOWED: Final = "DisruptionAllowed"


async def serve(api: Api, request: Request) -> Response:
    eviction = _read(request)
    options = _options(request, eviction)
    await admit_posted(api, request, eviction, "policy/v1", "Eviction")
    for left in range(TRIES, 0, -1):
        try:
            await _evict(api, request, options)
            break
        except _Overtaken as race:
            if left == 1:
                raise race.error from None
    return render.status(request.http, SUCCESS, 201)


class _Overtaken(Exception):
    """The pod changed between the check and the delete."""

    def __init__(self, error: StatusError) -> None:
        super().__init__(str(error))
        self.error = error


def _read(request: Request) -> dict[str, Any]:
    document = body.read_small(
        request.http.headers.get("content-type", ""), request.http.body
    ).document
    if document.get("kind") not in (None, "", "Eviction"):
        raise bad_request(f"the body must be an Eviction, not a {document['kind']}")
    meta = document.get("metadata") or {}
    if not isinstance(meta, dict):
        raise bad_request("the metadata of an Eviction must be an object")
    name = meta.get("name")
    if name and name != request.name:
        raise bad_request("name in URL does not match name in Eviction object")
    return document


def _options(request: Request, eviction: dict[str, Any]) -> DeleteOptions:
    """How the pod is to be deleted: dry if the body or the query says so, but not if they differ
    in that."""
    document = eviction.get("deleteOptions") or {}
    options = to_options(document)
    if document.get("ignoreStoreReadErrorWithClusterBreakingPotential"):
        path = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential"
        why = "can not be set for pod eviction, try after removing the option"
        error = FieldError.invalid(path, True, why)
        raise invalid("policy", "Eviction", request.name, [error])
    asked = request.query.all("dryRun")
    if asked and options.dryRun and list(asked) != list(options.dryRun):
        said = " and ".join(f"[{' '.join(each)}]" for each in (asked, options.dryRun))
        raise StatusError(500, "", f"Non-matching dry-run options in request and content: {said}")
    return replace(options, dryRun=list(options.dryRun or asked))


async def _evict(api: Api, request: Request, options: DeleteOptions) -> None:
    item = api.find(request)
    if item is None:
        raise gone(request)
    pod = item.document()
    if _ends(pod):
        await _delete(api, request, options)
    elif pod.get("status", {}).get("phase") == "Pending":
        await _delete(api, request, options, as_seen=pod)
    elif (budget := _budget(api, request, item)) is None:
        await _delete(api, request, options)
    elif not _ready(pod) and _spares_unready(budget):
        try:
            await _delete(api, request, options, as_seen=pod)
        except _Overtaken:
            raise _still_processed(budget["metadata"]["name"]) from None
    else:
        await _spend(api, request, budget["metadata"]["name"], dry=_dry(options))
        await _delete(api, request, options)


def _ends(pod: dict[str, Any]) -> bool:
    """Whether a pod has ended or is terminating; budgets do not count it."""
    return "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") in ENDED


def _dry(options: DeleteOptions) -> bool:
    return check_dry_run(list(options.dryRun), "DeleteOptions")


async def _delete(
    api: Api,
    request: Request,
    options: DeleteOptions,
    *,
    as_seen: dict[str, Any] | None = None,
) -> None:
    """Delete the pod, saying in its status why; if so wanted, only in the state that was seen."""
    demands = options.preconditions or Preconditions()
    guarded = as_seen is not None and demands.resourceVersion is None
    if guarded and as_seen is not None:
        version = as_seen["metadata"]["resourceVersion"]
        options = replace(options, preconditions=replace(demands, resourceVersion=version))
    try:
        if not _dry(options):
            options = await _mark(api, request, options)
        await delete_object(api, request, options)
    except StatusError as error:
        if guarded and error.reason == "Conflict":
            raise _Overtaken(error) from None
        raise


async def _mark(api: Api, request: Request, options: DeleteOptions) -> DeleteOptions:
    """Add the condition DisruptionTarget to the pod; returns options with the new version."""

    def marked(live: dict[str, Any]) -> DesiredDocument:
        check_preconditions(request, live, options.preconditions)
        return DesiredDocument(_disrupted(live, api.timestamp()))

    item = await write.modify(api, request, marked, MARKED, "CreateOptions")
    if options.preconditions is None or options.preconditions.resourceVersion is None:
        return options
    version = item.document()["metadata"]["resourceVersion"]
    return replace(options, preconditions=replace(options.preconditions, resourceVersion=version))


MARKED: Final = ObjectPart(
    "eviction",
    lambda resource, new, old: new,
    lambda resource, new, old: iter(()),
    write.MAIN.ignored,
    shown=lambda resource, obj: None,
    counts=False,
)


def _disrupted(pod: dict[str, Any], now: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "observedGeneration": pod["metadata"].get("generation", 0),
    }
    conditions = _with_condition(status.get("conditions") or (), target)
    return pod | {"status": status | {"conditions": conditions}}


def _with_condition(conditions: Any, new: dict[str, Any]) -> list[dict[str, Any]]:
    """The conditions with a new one in the place of its like, whose time it keeps if it is in the
    same state."""
    for i, old in enumerate(conditions):
        if old.get("type") == new["type"]:
            if old.get("status") == new["status"]:
                new = new | {"lastTransitionTime": old.get("lastTransitionTime")}
            return [*conditions[:i], new, *conditions[i + 1 :]]
    return [*conditions, new]


# Budgets.


def _budget(api: Api, request: Request, item: Item) -> dict[str, Any] | None:
    """Return the disruption budget of a pod."""
    found = [budget for budget in _budgets(api, request) if _covers(budget, item)]
    if len(found) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, "
            "which the eviction subresource does not support."
        )
        raise StatusError(500, "", message)
    return found[0] if found else None


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _spares_unready(budget: dict[str, Any]) -> bool:
    """Whether a pod that is not ready may be evicted without using the budget."""
    if budget.get("spec", {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    wanted = status.get("desiredHealthy", 0)
    return bool(0 < wanted <= status.get("currentHealthy", 0))


def _budgets(api: Api, request: Request) -> list[dict[str, Any]]:
    kind = api.catalog.find("policy", "v1", "poddisruptionbudgets")
    assert kind is not None
    prefix = f"{kind.prefix}{request.namespace}/"
    items = api.cache_of(kind).values()
    return [item.document() for item in items if item.key.startswith(prefix)]


def _covers(budget: dict[str, Any], pod: Item) -> bool:
    selector = budget.get("spec", {}).get("selector")
    return selector is not None and labels_from_object(selector).matches(pod.labels)


async def _spend(api: Api, request: Request, name: str, *, dry: bool) -> None:
    kind = api.catalog.find("policy", "v1", "poddisruptionbudgets")
    assert kind is not None
    update = Request(request.http, request.user, kind, "update", request.namespace, name, "status")

    def spent(live: dict[str, Any]) -> DesiredDocument:
        return DesiredDocument(_one_less(live, request.name, api.timestamp()))

    if dry:
        item = api.find(update)
        if item is not None:
            spent(item.document())
        return
    await write.modify(api, update, spent, write.STATUS, "UpdateOptions")


def _one_less(budget: dict[str, Any], pod: str, now: str) -> dict[str, Any]:
    """Return the budget after one more eviction; raises if it allows none."""
    name = budget["metadata"]["name"]
    status = budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _still_processed(name)
    allowed = status.get("disruptionsAllowed", 0)
    disrupted = status.get("disruptedPods") or {}
    if allowed < 0:
        raise _unusable(name, "pdb disruptions allowed is negative")
    if len(disrupted) > MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise _unusable(name, why)
    if allowed == 0:
        raise _blocked(_why_none(name, status))
    spent = {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted | {pod: now}}
    if allowed == 1:
        spent["conditions"] = _exhausted(status, now)
    return budget | {"status": status | spent}


def _exhausted(status: dict[str, Any], now: str) -> list[dict[str, Any]]:
    new = {
        "type": ALLOWED,
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "lastTransitionTime": now,
        "observedGeneration": status.get("observedGeneration", 0),
    }
    return _with_condition(status.get("conditions") or (), new)


def _why_none(name: str, status: dict[str, Any]) -> str:
    wanted, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    refusals = [
        each
        for each in status.get("conditions") or ()
        if (each.get("type"), each.get("status")) == (ALLOWED, "False") and each.get("message")
    ]
    reason, message = ("", "")
    if refusals:
        reason, message = refusals[0].get("reason", ""), refusals[0]["message"]
    stands = f"The disruption budget {name}"
    if reason == "SyncFailed":
        return f"{stands} does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= wanted:
        return f"{stands} needs {wanted} healthy pods and has {healthy} currently"
    if refusals:
        return f"{stands} does not allow evicting pods currently ({reason}): {message}"
    return f"{stands} does not allow evicting pods currently"


def _still_processed(name: str) -> StatusError:
    why = f"The disruption budget {name} is still being processed by the server."
    return _blocked(why, retry_after=LOOK_AGAIN)


def _blocked(why: str, retry_after: int = 0) -> StatusError:
    return StatusError(
        429,
        "TooManyRequests",
        BLOCKED,
        details={},
        causes=[StatusCause("DisruptionBudget", why)],
        retry_after=retry_after,
    )


def _unusable(name: str, why: str) -> StatusError:
    return forbidden("policy", "poddisruptionbudget", name, why)
