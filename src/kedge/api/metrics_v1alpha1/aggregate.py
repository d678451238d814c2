"""Aggregates of the metrics group: the usage of all pods of a workload, Service or namespace.

Only sums of means are exact. The maximum and the 95th percentile of a sum are not in the statistics
of its parts, so `total` has upper bounds of them and `lowerBounds` has lower bounds.
"""

from collections.abc import Mapping
from types import new_class
from typing import Final

from msgspec import field

from kedge.api.metrics_v1alpha1.columns import usage_columns
from kedge.api.metrics_v1alpha1.windows import Windows
from kedge.api.model import Model, Object, ResourceList
from kedge.api.presentation import Column, Presentation
from kedge.api.resource import ObjectSource, Resource

GROUP: Final = "metrics"


class UsageBounds(Model):
    """Lower bounds of two statistics of a sum."""

    max: ResourceList = field(default_factory=dict)
    """The greatest maximum of one pod: all pods together used at least this much at some time."""
    ninety_fifth: ResourceList = field(name="95th", default_factory=dict)
    """The greatest 95th percentile of one pod."""


class UsageDistribution(Model):
    """The means of the pods, from the least to the greatest, by nearest rank."""

    min: ResourceList = field(default_factory=dict)
    """The mean of the pod that used least."""
    median: ResourceList = field(name="50th", default_factory=dict)
    """Half of the pods used no more than this on average."""
    ninety_fifth: ResourceList = field(name="95th", default_factory=dict)
    """95 of 100 pods used no more than this on average."""
    max: ResourceList = field(default_factory=dict)
    """The mean of the pod that used most."""


class UsageAggregate(Object):
    """The usage of all pods of one group."""

    __required__ = ("pods", "total")

    pods: int = 0
    """How many pods are counted: those with a recent report."""
    total: Windows = field(default_factory=dict)
    """Usage of all pods together. The mean is exact, max and 95th are upper bounds, all three exact
    if there is one pod. A starttime says that a pod was measured only from then on."""
    lowerBounds: Mapping[str, UsageBounds] = field(default_factory=dict)
    """Lower bounds of max and 95th, by length of the window."""
    distribution: Mapping[str, UsageDistribution] = field(default_factory=dict)
    """How the usage is distributed over the pods, by length of the window."""


_OF_THIS_MODULE: Final = {"__module__": __name__, "__doc__": UsageAggregate.__doc__}


def _aggregate(kind: str, plural: str) -> Resource[UsageAggregate]:
    name, *usage = usage_columns(lambda found: found.total)
    pods = Column(
        name="Pods",
        type="integer",
        description="Pods with a recent report.",
        cell=lambda found: found.pods,
    )
    # Each kind has a type of its own, because OpenAPI names types, not kinds.
    type_ = new_class(kind, (UsageAggregate,), exec_body=lambda body: body.update(_OF_THIS_MODULE))
    return Resource(
        type=type_,
        group=GROUP,
        version="v1alpha1",
        plural=plural,
        verbs=("get", "list", "watch"),
        source=ObjectSource.USAGE_AGGREGATES,
        registry=f"metrics/{plural}",
        presentation=Presentation(columns=(name, pods, *usage)),
    )


NAMESPACES: Final = _aggregate("NamespaceUsage", "namespaceusages")
"""Not `namespaces`: the proposal of this API wants 404 for /namespaces and /namespaces/{name}."""
QOS_CLASSES: Final = _aggregate("QOSClass", "qosclasses")
SERVICES: Final = _aggregate("Service", "services")
WORKLOADS: Final = tuple(
    _aggregate(kind, f"{kind.lower()}s")
    for kind in (
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    )
)
"""Controllers that own pods, directly or through another controller."""
RESOURCES: Final = (*WORKLOADS, NAMESPACES, QOS_CLASSES, SERVICES)
PLURALS: Final = frozenset(each.plural for each in RESOURCES)
