"""pods/eviction: a delete that respects disruption budgets."""

from typing import Any

from msgspec.structs import replace

from kedge.apiserver import body
from kedge.apiserver.api import Api, gone
from kedge.apiserver.request import Request
from kedge.apiserver.subresources.binding import SUCCESS, admit_posted
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.delete import delete_object, to_options
from kedge.apiserver.verbs.patches import Wanted
from kedge.apiserver.watchcache import Item
from kedge.machinery.errors import Cause, StatusError, bad_request, internal
from kedge.machinery.selectors import labels_from_object
from kedge.web.message import Response, json_response

UNPROTECTED = ("Succeeded", "Failed", "Pending")
"""Pods in these phases serve nobody, so no budget speaks for them."""


async def serve(api: Api, request: Request) -> Response:
    eviction = _read(api, request)
    options = to_options(eviction.get("deleteOptions") or {})
    await admit_posted(api, request, eviction, "policy/v1", "Eviction")
    options = replace(options, dryRun=[*options.dryRun, *request.query.all("dryRun")])
    item = api.find(request)
    if item is None:
        raise gone(request)
    await _spend_budget(api, request, item, dry=bool(options.dryRun))
    await delete_object(api, request, options)
    return json_response(SUCCESS, 201)


def _read(api: Api, request: Request) -> dict[str, Any]:
    document = body.read(request.http.headers.get("content-type", ""), request.http.body).document
    if document.get("kind") not in (None, "", "Eviction"):
        raise bad_request(f"the body must be an Eviction, not a {document['kind']}")
    meta = document.get("metadata") or {}
    if not isinstance(meta, dict):
        raise bad_request("the metadata of an Eviction must be an object")
    name = meta.get("name")
    if name and name != request.name:
        raise bad_request("name in URL does not match name in Eviction object")
    return document


async def _spend_budget(api: Api, request: Request, item: Item, *, dry: bool) -> None:
    pod = item.document()
    if pod.get("status", {}).get("phase") in UNPROTECTED or "deletionTimestamp" in pod["metadata"]:
        return
    budgets = [budget for budget in _budgets(api, request) if _covers(budget, item)]
    if len(budgets) > 1:
        raise internal(
            "This pod has more than one PodDisruptionBudget, "
            "which the eviction subresource does not support."
        )
    for budget in budgets:
        if not _ready(pod) and _spares_unready(budget):
            continue
        await _spend(api, request, budget["metadata"]["name"], dry=dry)


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _spares_unready(budget: dict[str, Any]) -> bool:
    """Whether a pod that is not ready may go without being counted."""
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

    def spent(live: dict[str, Any]) -> Wanted:
        return Wanted(_one_less(live, request.name, api.timestamp()))

    if dry:
        item = api.find(update)
        if item is not None:
            spent(item.document())
        return
    await write.modify(api, update, spent, write.STATUS, "UpdateOptions")


def _one_less(budget: dict[str, Any], pod: str, now: str) -> dict[str, Any]:
    name = budget["metadata"]["name"]
    status = budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _blocked(f"The disruption budget {name} is still being processed by the server.")
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        raise _blocked(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods "
            f"and has {status.get('currentHealthy', 0)} currently"
        )
    disrupted = (status.get("disruptedPods") or {}) | {pod: now}
    return budget | {
        "status": status | {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    }


def _blocked(why: str) -> StatusError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return StatusError(
        429, "TooManyRequests", message, details={}, causes=[Cause("DisruptionBudget", why)]
    )
