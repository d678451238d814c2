"""Pod of the metrics group: what the containers of a pod used, over four windows of time."""

from collections.abc import Sequence

from msgspec import field

from kedge.api.metrics_v1alpha1.windows import (
    MAIN,
    Container,
    Metrics,
    Windows,
    added,
    cores,
    megabytes,
)
from kedge.api.model import Object, ResourceList
from kedge.api.resource import Column, Resource, name_column
from kedge.machinery.quantity import Quantity


class Pod(Object):
    """What a pod used."""

    __required__ = ("containers",)

    containers: Sequence[Container] = ()
    """What each of its containers used."""
    total: Windows = field(default_factory=dict)
    """What the pod as a whole used, if it has several containers: the maximum of a sum is not
    the sum of maxima."""


def windows_of(pod: Pod) -> Windows:
    """What the pod as a whole used; of several containers without a total only the means add up."""
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


def _mean(pod: Pod, length: str) -> ResourceList:
    return windows_of(pod).get(length, Metrics()).mean


def _peak(pod: Pod, resource: str) -> Quantity | None:
    return windows_of(pod).get("1d", Metrics()).max.get(resource)


def _usual(pod: Pod, resource: str) -> Quantity | None:
    return windows_of(pod).get("1d", Metrics()).ninety_fifth.get(resource)


RESOURCE = Resource(
    type=Pod,
    group="metrics",
    version="v1alpha1",
    plural="pods",
    verbs=("get", "list", "watch"),
    measured=True,
    fields={"spec.nodeName": lambda pod: ""},
    columns=(
        name_column(),
        Column(
            name="CPU",
            description="Cores used on average during the last minute.",
            cell=lambda pod: cores(_mean(pod, MAIN).get("cpu")),
        ),
        Column(
            name="MEM",
            description="Memory used on average during the last minute.",
            cell=lambda pod: megabytes(_mean(pod, MAIN).get("memory")),
        ),
        Column(
            name="CPU 1h",
            description="Cores used on average during the last hour.",
            cell=lambda pod: cores(_mean(pod, "1h").get("cpu")),
            priority=1,
        ),
        Column(
            name="MEM 1h",
            description="Memory used on average during the last hour.",
            cell=lambda pod: megabytes(_mean(pod, "1h").get("memory")),
            priority=1,
        ),
        Column(
            name="CPU 95th 1d",
            description="Cores that 95 of 100 samples of the last day did not exceed.",
            cell=lambda pod: cores(_usual(pod, "cpu")),
            priority=1,
        ),
        Column(
            name="MEM max 1d",
            description="The most memory used during the last day.",
            cell=lambda pod: megabytes(_peak(pod, "memory")),
            priority=1,
        ),
    ),
)
