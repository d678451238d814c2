"""NodeMetrics and PodMetrics: one value for each resource, of the newest window of time."""

from collections.abc import Sequence

from msgspec import field

from kedge.api.metrics_v1alpha1.windows import added
from kedge.api.model import Model, Object, ResourceList, Time
from kedge.api.presentation import Column, Presentation, name_column
from kedge.api.resource import ObjectSource, Resource


class ContainerMetrics(Model):
    """The usage of one container."""

    __required__ = ("name", "usage")

    name: str = ""
    """Its name."""
    usage: ResourceList = field(default_factory=dict)
    """The average usage, by resource."""


class PodMetrics(Object):
    """The usage of a pod."""

    __required__ = ("timestamp", "window", "containers")

    timestamp: Time = ""
    """When the window ended."""
    window: str = ""
    """How long it was."""
    containers: Sequence[ContainerMetrics] = ()
    """The usage of each container."""


class NodeMetrics(Object):
    """The usage of a node."""

    __required__ = ("timestamp", "window", "usage")

    timestamp: Time = ""
    """When the window ended."""
    window: str = ""
    """How long it was."""
    usage: ResourceList = field(default_factory=dict)
    """The average usage, by resource."""


def pods(type_: type[Object], version: str) -> Resource[Object]:
    """The resource of pods in one version."""
    return Resource(
        type=type_,
        kind="PodMetrics",
        group="metrics.k8s.io",
        version=version,
        plural="pods",
        singular="pod",
        verbs=("get", "list"),
        source=ObjectSource.NODE_REPORTS,
        registry="metrics.k8s.io/pods",
        presentation=Presentation(
            fields={"spec.nodeName": lambda pod: ""},
            columns=(name_column(), *_usage_columns(_of_pod), _window_column()),
        ),
    )


def nodes(type_: type[Object], version: str) -> Resource[Object]:
    """The resource of nodes in one version."""
    return Resource(
        type=type_,
        kind="NodeMetrics",
        group="metrics.k8s.io",
        version=version,
        plural="nodes",
        singular="node",
        namespaced=False,
        verbs=("get", "list"),
        source=ObjectSource.NODE_REPORTS,
        registry="metrics.k8s.io/nodes",
        presentation=Presentation(
            columns=(name_column(), *_usage_columns(_of_node), _window_column())
        ),
    )


def _usage_columns(usage: object) -> tuple[Column, ...]:
    assert callable(usage)
    return (
        Column(name="cpu", cell=lambda obj: str(usage(obj).get("cpu", ""))),
        Column(name="memory", cell=lambda obj: str(usage(obj).get("memory", ""))),
    )


def _window_column() -> Column:
    return Column(name="Window", format="duration", cell=lambda obj: obj.window)


def _of_node(node: NodeMetrics) -> ResourceList:
    return node.usage


def _of_pod(pod: PodMetrics) -> ResourceList:
    return added([each.usage for each in pod.containers])


PODS = pods(PodMetrics, "v1beta1")
NODES = nodes(NodeMetrics, "v1beta1")
