"""The FlowSchemas and PriorityLevelConfigurations that every cluster has from the start, and the
conditions of all FlowSchemas."""

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kedge.apiserver import managed
from kedge.apiserver.api import Api
from kedge.apiserver.bootstrap import ensure_object, request_for
from kedge.apiserver.verbs import write
from kedge.apiserver.verbs.patches import DesiredDocument
from kedge.apiserver.watchcache import ResourceCache
from kedge.machinery.errors import StatusError
from kedge.storage.store import StoreError

log = logging.getLogger(__name__)

VERSION: Final = "flowcontrol.apiserver.k8s.io/v1"
_CONDITION_MANAGER: Final = "api-priority-and-fairness-config-consumer-v1"
_RETRY_SECONDS: Final = 5
_ANNOTATIONS: Final = {"apf.kubernetes.io/autoupdate-spec": "true"}


async def ensure_flow_control(api: Api) -> None:
    """Create the missing objects; existing ones stay as they are."""
    for document in default_objects():
        await ensure_object(api, document)


def default_objects() -> list[dict[str, Any]]:
    """Return the objects that every cluster has."""
    return [*_levels(), *_schemas()]


async def report_conditions(api: Api) -> None:
    """Write into the status of each FlowSchema whether its priority level exists."""
    levels, schemas = _cache_of(api, "PriorityLevelConfiguration"), _cache_of(api, "FlowSchema")
    names = {item.key.rpartition("/")[2] for item in levels.values()}
    for item in list(schemas.values()):
        document = item.document()
        wanted = _dangling(document, names)
        if not _has_condition(document, wanted):
            await _write_condition(api, document, wanted)


async def keep_conditions(api: Api) -> None:
    """Report the conditions, and again when a schema or level changes; for ever."""
    woken = asyncio.Event()
    for kind in ("FlowSchema", "PriorityLevelConfiguration"):
        _cache_of(api, kind).listeners.add(lambda change: woken.set())
    while True:
        try:
            await report_conditions(api)
            await woken.wait()
            woken.clear()
        except (OSError, StoreError, StatusError) as error:
            log.error("conditions of FlowSchemas not written, retrying error=%s", error)
            await api.clock.sleep(_RETRY_SECONDS)


def _cache_of(api: Api, kind: str) -> ResourceCache:
    resource = api.catalog.of_kind(VERSION, kind)
    assert resource is not None
    return api.cache.of(resource)


def _dangling(schema: dict[str, Any], levels: Collection[str]) -> dict[str, str]:
    name = schema["spec"]["priorityLevelConfiguration"]["name"]
    reference = f'This FlowSchema references the PriorityLevelConfiguration object named "{name}"'
    if name in levels:
        status, reason, rest = "False", "Found", "and it exists"
    else:
        status, reason, rest = "True", "NotFound", "but there is no such object"
    message = f"{reference} {rest}"
    return {"type": "Dangling", "status": status, "reason": reason, "message": message}


def _has_condition(schema: dict[str, Any], wanted: dict[str, str]) -> bool:
    found = (schema.get("status") or {}).get("conditions") or ()
    return any(wanted.items() <= each.items() for each in found)


async def _write_condition(api: Api, schema: dict[str, Any], wanted: dict[str, str]) -> None:
    condition = wanted | {"lastTransitionTime": api.timestamp()}
    resource = api.catalog.of_kind(VERSION, "FlowSchema")
    assert resource is not None

    def changed(live: dict[str, Any]) -> DesiredDocument:
        applied = managed.apply(
            resource.schema,
            live,
            {"metadata": {"name": live["metadata"]["name"]}, "status": {"conditions": [condition]}},
            manager=_CONDITION_MANAGER,
            force=True,
            api_version=VERSION,
            now=api.timestamp(),
            settle=lambda document: document,
            subresource="status",
            ignore=write.STATUS.ignored(resource),
        )
        return DesiredDocument(applied, applied=True)

    request = request_for(api, schema, "update")
    request = msgspec.structs.replace(request, subresource="status")
    try:
        await write.modify(api, request, changed, write.STATUS, "UpdateOptions")
    except StatusError as error:
        if error.code not in (404, 409):
            raise


class PriorityLevel(NamedTuple):
    """A level with its shares; one without queues rejects what is too much."""

    name: str
    shares: int
    lendable_percent: int
    queues: int = 0
    hand_size: int = 0


LEVELS: Final = (
    PriorityLevel("catch-all", 5, 0),
    PriorityLevel("system", 30, 33, 64, 6),
    PriorityLevel("node-high", 40, 25, 64, 6),
    PriorityLevel("leader-election", 10, 0, 16, 4),
    PriorityLevel("workload-high", 40, 50, 128, 6),
    PriorityLevel("workload-low", 100, 90, 128, 6),
    PriorityLevel("global-default", 20, 50, 128, 6),
)
_QUEUE_LENGTH: Final = 50


def _levels() -> Iterator[dict[str, Any]]:
    exempt = {"nominalConcurrencyShares": 0, "lendablePercent": 0}
    yield _object("PriorityLevelConfiguration", "exempt", {"type": "Exempt", "exempt": exempt})
    for level in LEVELS:
        limited = {
            "nominalConcurrencyShares": level.shares,
            "lendablePercent": level.lendable_percent,
            "limitResponse": _limit_response(level),
        }
        spec = {"type": "Limited", "limited": limited}
        yield _object("PriorityLevelConfiguration", level.name, spec)


def _limit_response(level: PriorityLevel) -> dict[str, Any]:
    if not level.queues:
        return {"type": "Reject"}
    queuing = {
        "queues": level.queues,
        "handSize": level.hand_size,
        "queueLengthLimit": _QUEUE_LENGTH,
    }
    return {"type": "Queue", "queuing": queuing}


Rules = dict[str, Any]
Subjects = Sequence[dict[str, Any]]


class RequestFlow(NamedTuple):
    """A FlowSchema: whose requests, in which order of matching, belong to which level."""

    name: str
    level: str
    precedence: int
    method: str
    """How flows are distinguished: by user or by namespace; empty if all are one flow."""
    subjects: Subjects
    rules: Rules


def _groups(*names: str) -> Subjects:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _users(*names: str) -> Subjects:
    return [{"kind": "User", "user": {"name": name}} for name in names]


def _resource_rule(
    verbs: Sequence[str], group: str, resources: Sequence[str], *, cluster_scope: bool
) -> dict[str, Any]:
    rule: dict[str, Any] = {"verbs": verbs, "apiGroups": [group], "resources": resources}
    rule["namespaces"] = ["*"]
    return rule | ({"clusterScope": True} if cluster_scope else {})


_EVERYTHING: Final[Rules] = {
    "resourceRules": [_resource_rule(["*"], "*", ["*"], cluster_scope=True)],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
}
_EVERYBODY: Final = _groups("system:unauthenticated", "system:authenticated")
_NODES: Final = _groups("system:nodes")
_SYSTEM_ACCOUNTS: Final[Subjects] = [
    {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}}
]
_LEASES: Final = "coordination.k8s.io"
_PROBES: Final[Rules] = {
    "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]
}
_ELECTION: Final[Rules] = {
    "resourceRules": [
        _resource_rule(["get", "create", "update"], _LEASES, ["leases"], cluster_scope=False)
    ]
}
_NODE_STATUS: Final[Rules] = {
    "resourceRules": [
        _resource_rule(["*"], "", ["nodes", "nodes/status"], cluster_scope=True),
        _resource_rule(["*"], _LEASES, ["leases"], cluster_scope=False),
    ]
}
_MANAGER: Final = "system:kube-controller-manager"
_SCHEDULER: Final = "system:kube-scheduler"

FLOWS: Final = (
    RequestFlow("exempt", "exempt", 1, "", _groups("system:masters"), _EVERYTHING),
    RequestFlow("probes", "exempt", 2, "", _EVERYBODY, _PROBES),
    RequestFlow(
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        [*_users(_MANAGER, _SCHEDULER), *_SYSTEM_ACCOUNTS],
        _ELECTION,
    ),
    RequestFlow("system-node-high", "node-high", 400, "ByUser", _NODES, _NODE_STATUS),
    RequestFlow("system-nodes", "system", 500, "ByUser", _NODES, _EVERYTHING),
    RequestFlow(
        "kube-controller-manager",
        "workload-high",
        800,
        "ByNamespace",
        _users(_MANAGER),
        _EVERYTHING,
    ),
    RequestFlow(
        "kube-scheduler", "workload-high", 800, "ByNamespace", _users(_SCHEDULER), _EVERYTHING
    ),
    RequestFlow(
        "kube-system-service-accounts",
        "workload-high",
        900,
        "ByNamespace",
        _SYSTEM_ACCOUNTS,
        _EVERYTHING,
    ),
    RequestFlow(
        "service-accounts",
        "workload-low",
        9000,
        "ByUser",
        _groups("system:serviceaccounts"),
        _EVERYTHING,
    ),
    RequestFlow("global-default", "global-default", 9900, "ByUser", _EVERYBODY, _EVERYTHING),
    RequestFlow("catch-all", "catch-all", 10000, "ByUser", _EVERYBODY, _EVERYTHING),
)


def _schemas() -> Iterator[dict[str, Any]]:
    for flow in FLOWS:
        spec: dict[str, Any] = {
            "priorityLevelConfiguration": {"name": flow.level},
            "matchingPrecedence": flow.precedence,
            "rules": [{"subjects": flow.subjects, **flow.rules}],
        }
        if flow.method:
            spec["distinguisherMethod"] = {"type": flow.method}
        yield _object("FlowSchema", flow.name, spec)


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "annotations": _ANNOTATIONS}
    return {"apiVersion": VERSION, "kind": kind, "metadata": meta, "spec": spec}
