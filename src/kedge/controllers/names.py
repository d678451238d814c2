"""Names of controllers, as in kube-controller-manager, and the list of those to run."""

from collections.abc import Collection, Sequence
from typing import Final

SCHEDULER: Final = "scheduler"
"""A separate process in Kubernetes; here --controllers can disable it like any controller."""

ALIASES: Final = {
    "namespace-controller": "namespace",
    "serviceaccount-controller": "serviceaccount",
    "root-ca-certificate-publisher-controller": "root-ca-cert-publisher",
    "serviceaccount-token-controller": "serviceaccount-token",
    "certificatesigningrequest-signing-controller": "csrsigning",
    "cluster-info-controller": "cluster-info",
    "clusterrole-aggregation-controller": "clusterrole-aggregation",
    "resourcequota-controller": "resourcequota",
    "garbage-collector-controller": "garbagecollector",
    "job-controller": "job",
    "cronjob-controller": "cronjob",
    "ttl-after-finished-controller": "ttl-after-finished",
    "pod-garbage-collector-controller": "podgc",
    "replicaset-controller": "replicaset",
    "replicationcontroller-controller": "replicationcontroller",
    "deployment-controller": "deployment",
    "statefulset-controller": "statefulset",
    "daemonset-controller": "daemonset",
    "horizontal-pod-autoscaler-controller": "horizontalpodautoscaling",
    "disruption-controller": "disruption",
    "node-lifecycle-controller": "nodelifecycle",
    "taint-eviction-controller": "taint-eviction",
    "endpointslice-controller": "endpointslice",
    "endpoints-controller": "endpoint",
    "endpointslice-mirroring-controller": "endpointslicemirroring",
    "limitrange-controller": "limitrange",
    SCHEDULER: "kube-scheduler",
}
"""The name of each controller, and its short name from before Kubernetes 1.28."""

ALL: Final = tuple(ALIASES)

_NAMES: Final = {alias: name for name, alias in ALIASES.items()} | {name: name for name in ALL}


class UnknownController(LookupError):
    """A list names a controller that does not exist."""


def enabled(asked: Sequence[str]) -> tuple[str, ...]:
    """Return the controllers of a list in upstream's syntax, such as `*,-statefulset`.

    `*` enables all, `NAME` one; `-NAME` disables one. The first entry for a controller applies.
    """
    said: dict[str, bool] = {}
    for each in asked:
        if each != "*":
            said.setdefault(_resolved(each.removeprefix("-")), not each.startswith("-"))
    return tuple(name for name in ALL if said.get(name, "*" in asked))


def disabled(names: Collection[str]) -> tuple[str, ...]:
    """Return the controllers that are not in the list."""
    return tuple(name for name in ALL if name not in names)


def _resolved(name: str) -> str:
    try:
        return _NAMES[name]
    except KeyError:
        raise UnknownController(name) from None
