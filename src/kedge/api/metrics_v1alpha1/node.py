"""Node of the metrics group: what a machine and its daemons used, over four windows of time."""

from collections.abc import Sequence

from msgspec import field

from kedge.api.metrics_v1alpha1.columns import usage_columns
from kedge.api.metrics_v1alpha1.windows import Container, Windows
from kedge.api.model import Object
from kedge.api.presentation import Presentation
from kedge.api.resource import ObjectSource, Resource


class Node(Object):
    """The usage of a node."""

    __required__ = ("machine",)

    machine: Windows = field(default_factory=dict)
    """Usage of the whole machine, by length of the window: 10s, 1m, 1h, 1d."""
    systemContainers: Sequence[Container] = ()
    """Usage of its daemons and of all pods together: kubelet, runtime, misc, pods."""


RESOURCE: Resource[Node] = Resource(
    type=Node,
    group="metrics",
    version="v1alpha1",
    plural="nodes",
    namespaced=False,
    verbs=("get", "list", "watch"),
    source=ObjectSource.NODE_REPORTS,
    registry="metrics/nodes",
    presentation=Presentation(columns=usage_columns(lambda node: node.machine)),
)
