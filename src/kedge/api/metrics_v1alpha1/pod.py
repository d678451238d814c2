"""Pod of the metrics group: what the containers of a pod used, over four windows of time."""

from collections.abc import Sequence

from msgspec import field

from kedge.api.metrics_v1alpha1.columns import usage_columns
from kedge.api.metrics_v1alpha1.windows import Container, Metrics, Windows, added
from kedge.api.model import Object
from kedge.api.presentation import Presentation
from kedge.api.resource import ObjectSource, Resource


class Pod(Object):
    """The usage of a pod."""

    __required__ = ("containers",)

    containers: Sequence[Container] = ()
    """Usage of each of its containers."""
    total: Windows = field(default_factory=dict)
    """Usage of the whole pod, if it has several containers: maxima of containers do not add up."""


def windows_of(pod: Pod) -> Windows:
    """Return the usage of the whole pod.

    If several containers come without a total, only the means are returned, because only they add
    up.
    """
    if pod.total or not pod.containers:
        return pod.total
    if len(pod.containers) == 1:
        return pod.containers[0].metrics
    lengths = dict.fromkeys(length for each in pod.containers for length in each.metrics)
    return {
        length: _sum([each.metrics.get(length) for each in pod.containers]) for length in lengths
    }


def _sum(parts: Sequence[Metrics | None]) -> Metrics:
    known = [part for part in parts if part is not None]
    return Metrics(
        endtime=min(part.endtime for part in known),
        mean=added([part.mean for part in known]),
        max=added([part.max for part in known]),
        ninety_fifth=added([part.ninety_fifth for part in known]),
    )


RESOURCE: Resource[Pod] = Resource(
    type=Pod,
    group="metrics",
    version="v1alpha1",
    plural="pods",
    verbs=("get", "list", "watch"),
    source=ObjectSource.NODE_REPORTS,
    registry="metrics/pods",
    presentation=Presentation(
        fields={"spec.nodeName": lambda pod: ""},
        columns=usage_columns(windows_of),
    ),
)
