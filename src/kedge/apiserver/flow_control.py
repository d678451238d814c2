"""The FlowSchemas and PriorityLevelConfigurations that every cluster has from the start.

They have no effect here, but clients that look for the defaults of Kubernetes find them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kedge.apiserver.api import Api
from kedge.apiserver.bootstrap import ensure_object

VERSION: Final = "flowcontrol.apiserver.k8s.io/v1"
_ANNOTATIONS: Final = {"apf.kubernetes.io/autoupdate-spec": "true"}


async def ensure_flow_control(api: Api) -> None:
    """Create the missing objects; existing ones stay as they are."""
    for document in (*_levels(), *_schemas()):
        await ensure_object(api, document)


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
