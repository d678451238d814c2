"""Percentiles and histories on request: asked of the nodes, because their reports have only the
95th percentile of each window."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kedge.api.resource import ObjectSource
from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.subresources.pod_streams import agent
from kedge.machinery.errors import StatusError, bad_request
from kedge.metrics import percentiles, usage_history
from kedge.metrics.usage_object import UsageObject
from kedge.web.exchange import OutgoingRequest, ask

MOST_NODES_AT_ONCE: Final = 16
PATIENCE_SECONDS: Final = 5.0
FEW_PODS: Final = 8
"""Pods of one node that are asked for one by one, not with all others of the node."""
MOST_OBJECTS: Final = 1000
"""Objects of one list with percentiles: each is decoded and written again for its only reader."""
MOST_BYTES: Final = 16 << 20
"""The limit for the answer of one node."""
_ROOT: Final = "/apis/metrics/v1alpha1"
_PARTS: Final = {
    "machine": dict,
    "systemContainers": list,
    "containers": list,
    "total": dict,
    "history": dict,
}
"""Parts of a document that its node knows better, and their types."""
_BAD_ANSWER: Final = (
    OSError,
    TimeoutError,
    StatusError,
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
)

Document = dict[str, Any]


def requested(request: Request) -> str:
    """The query for the nodes; empty if their reports are enough. 400 if it makes no sense."""
    wanted = (_percentiles(request), _history(request))
    return "&".join(filter(None, wanted))


def _history(request: Request) -> str:
    if not request.query.flag(usage_history.PARAMETER):
        return ""
    _check_resource(request, usage_history.PARAMETER)
    if request.verb != "get":
        raise bad_request(f"{usage_history.PARAMETER} applies to one object: get it by its name")
    return f"{usage_history.PARAMETER}=true"


def _check_resource(request: Request, parameter: str) -> None:
    resource = request.resource
    is_reported = resource.source is ObjectSource.NODE_REPORTS and resource.group == "metrics"
    if not is_reported or resource.plural not in ("nodes", "pods"):
        raise bad_request(f"{parameter} apply to pods and nodes of metrics/v1alpha1")


def _percentiles(request: Request) -> str:
    if percentiles.PARAMETER not in request.query:
        return ""
    _check_resource(request, percentiles.PARAMETER)
    if request.verb == "watch":
        raise bad_request(f"{percentiles.PARAMETER} cannot be watched: get or list them")
    try:
        wanted = percentiles.parse(request.query.get(percentiles.PARAMETER))
    except ValueError as error:
        raise bad_request(str(error)) from None
    return f"{percentiles.PARAMETER}=" + ",".join(f"{each.percent:f}" for each in wanted)


async def extended(
    api: Api, request: Request, objects: Sequence[UsageObject], wanted: str
) -> list[bytes]:
    """The documents of objects with these percentiles. All windows of one document are those of
    its node, so that they end together. A node that does not answer leaves its documents as they
    were, and a warning names it."""
    plural = request.resource.plural
    if len(objects) > MOST_OBJECTS:
        raise bad_request(
            f"{percentiles.PARAMETER} apply to at most {MOST_OBJECTS} objects, and {len(objects)}"
            " are selected: name a namespace or a selector"
        )
    gate = asyncio.Semaphore(MOST_NODES_AT_ONCE)
    nodes = sorted({each.node for each in objects})
    found: dict[str, Document] = {}

    async def fetch(node: str) -> None:
        async with gate:
            own = [each for each in objects if each.node == node]
            documents: dict[str, Document] = {}
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    for path in _paths(plural, own):
                        answer = await _fetched(api, node, f"{path}?{wanted}")
                        documents.update(_by_uid(answer))
                found.update(
                    {each.uid: documents[each.uid] for each in own if each.uid in documents}
                )
            except _BAD_ANSWER as error:
                why = str(error) or "no answer in time"
                request.warnings.append(f"node {node} has sent no percentiles: {why[:200]}")

    await asyncio.gather(*(fetch(node) for node in nodes))
    return [_merged(each, found.get(each.uid)) for each in objects]


def _paths(plural: str, objects: Sequence[UsageObject]) -> list[str]:
    """A few pods by name, else all of their namespace if they have one, else all of the node."""
    if plural == "nodes":
        return [f"{_ROOT}/{plural}/{quote(one.name)}" for one in objects]
    if len(objects) <= FEW_PODS:
        return [
            f"{_ROOT}/namespaces/{quote(one.namespace)}/pods/{quote(one.name)}" for one in objects
        ]
    namespaces = {one.namespace for one in objects}
    if len(namespaces) == 1:
        return [f"{_ROOT}/namespaces/{quote(namespaces.pop())}/pods"]
    return [f"{_ROOT}/pods"]


async def _fetched(api: Api, node: str, target: str) -> Any:
    exchange = await ask(agent(api, node), OutgoingRequest("GET", target))
    try:
        body = await exchange.whole(MOST_BYTES)
    finally:
        exchange.close()
    if exchange.status != 200:
        raise ValueError(f"it answered {exchange.status}")
    return msgspec.json.decode(body)


def _by_uid(answer: Any) -> Iterable[tuple[str, Document]]:
    items = answer.get("items", [answer]) if isinstance(answer, Mapping) else []
    for each in items:
        parts = {key: each[key] for key in _PARTS if key in each}
        if not all(isinstance(part, _PARTS[key]) for key, part in parts.items()):
            raise TypeError("its answer is malformed")
        yield each["metadata"]["uid"], parts


def _merged(known: UsageObject, sent: Document | None) -> bytes:
    body = known.body()
    if sent is None:
        return body
    document: Document = msgspec.json.decode(body)
    document |= sent
    return msgspec.json.encode(document)
