"""Node of the metrics group: what a machine and its daemons used, over four windows of time."""

from collections.abc import Sequence

from msgspec import field

from kedge.api.metrics_v1alpha1.windows import (
    MAIN,
    Container,
    Metrics,
    Windows,
    cores,
    megabytes,
)
from kedge.api.model import Object, ResourceList
from kedge.api.resource import Column, Resource, name_column


class Node(Object):
    """What a node used."""

    __required__ = ("machine",)

    machine: Windows = field(default_factory=dict)
    """What the whole machine used, by length of the window: 10s, 1m, 1h, 1d."""
    systemContainers: Sequence[Container] = ()
    """What its daemons used, and all pods together: kubelet, runtime, misc, pods."""


def _window(node: Node, length: str) -> Metrics:
    return node.machine.get(length, Metrics())


def _mean(node: Node, length: str) -> ResourceList:
    return _window(node, length).mean


RESOURCE = Resource(
    type=Node,
    group="metrics",
    version="v1alpha1",
    plural="nodes",
    namespaced=False,
    verbs=("get", "list", "watch"),
    measured=True,
    columns=(
        name_column(),
        Column(
            name="CPU",
            description="Cores used on average during the last minute.",
            cell=lambda node: cores(_mean(node, MAIN).get("cpu")),
        ),
        Column(
            name="MEM",
            description="Memory used on average during the last minute.",
            cell=lambda node: megabytes(_mean(node, MAIN).get("memory")),
        ),
        Column(
            name="CPU 1h",
            description="Cores used on average during the last hour.",
            cell=lambda node: cores(_mean(node, "1h").get("cpu")),
            priority=1,
        ),
        Column(
            name="MEM 1h",
            description="Memory used on average during the last hour.",
            cell=lambda node: megabytes(_mean(node, "1h").get("memory")),
            priority=1,
        ),
        Column(
            name="CPU 95th 1d",
            description="Cores that 95 of 100 samples of the last day did not exceed.",
            cell=lambda node: cores(_window(node, "1d").ninety_fifth.get("cpu")),
            priority=1,
        ),
        Column(
            name="MEM max 1d",
            description="The most memory used during the last day.",
            cell=lambda node: megabytes(_window(node, "1d").max.get("memory")),
            priority=1,
        ),
    ),
)
