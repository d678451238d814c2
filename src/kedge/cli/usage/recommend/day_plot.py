"""Plots of the usage of a container in lines of text, with the proposed sizes drawn in."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from kedge.api.metrics_v1alpha1 import pod
from kedge.api.metrics_v1alpha1.pod import Pod
from kedge.cli.objects.connection import ApiSession, document_in
from kedge.cli.output import plot
from kedge.cli.output.plot import Plot, Points, Rule
from kedge.cli.usage.recommend.proposal import Size, SizeProposal
from kedge.client.client import path_of
from kedge.machinery.durations import human_age, parse_time
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Quantity
from kedge.metrics.usage_history import PARAMETER

_HEIGHT: Final = 10
_MARGIN: Final = 44
"""Columns for the axis and the labels of the rules."""
_NARROWEST: Final = 24
_FAR: Final = 3
"""How many times the greatest amount a size may be to be drawn."""
_NANOS: Final = 1_000_000_000
RESOURCES: Final = ("cpu", "memory")


async def plots(connection: ApiSession, proposal: SizeProposal) -> list[str]:
    """Return the plots of a workload: of each container, the pod that used most."""
    lines: list[str] = []
    documents: dict[str, Mapping[str, Any]] = {}
    for name, sizes in proposal.sizes.items():
        for resource in (each for each in RESOURCES if each in sizes):
            shown = busiest(proposal.workload.pods, name, resource)
            if shown not in documents:
                documents[shown] = await _history(connection, proposal.workload.namespace, shown)
            window = proposal.found[name][resource].window
            course = course_of(documents[shown], name, window)
            now = _sizes_now(proposal.declared[name].resources, resource)
            title = f"{resource} of {name} in {shown}"
            lines += ["", *drawn(title, course, resource, now, sizes[resource])]
    return lines


async def _history(connection: ApiSession, namespace: str, name: str) -> Mapping[str, Any]:
    """Fetch the course of a pod's usage; empty if its node no longer has it."""
    try:
        path = path_of(pod.RESOURCE, namespace, name)
        return document_in((await connection.client.send("GET", path, {PARAMETER: "true"})).body)
    except StatusError as error:
        if error.code != 404:
            raise
        return {}


def busiest(pods: Sequence[Pod], container: str, resource: str) -> str:
    """Return the name of the pod whose container used most of a resource."""

    def most(each: Pod) -> int:
        found = [
            window.max[resource].nanos
            for one in each.containers
            if one.metadata.name == container
            for window in one.metrics.values()
            if resource in window.max
        ]
        return max(found, default=-1)

    return max(pods, key=most).metadata.name


def course_of(document: Mapping[str, Any], container: str, window: str) -> Mapping[str, Any]:
    """Return the course of a container over a window; empty if it is not known."""
    for each in document.get("containers") or ():
        if each["metadata"]["name"] == container:
            found: Mapping[str, Any] = (each.get("history") or {}).get(window) or {}
            return found
    return {}


def _sizes_now(declared: Mapping[str, Any], resource: str) -> list[Rule]:
    return [
        Rule(quantity.nanos / _NANOS, f"{label} {quantity}")
        for label, sort in (("request", "requests"), ("limit", "limits"))
        if resource in (declared.get(sort) or {})
        for quantity in [Quantity.of(declared[sort][resource])]
    ]


def _sizes_proposed(size: Size) -> list[Rule]:
    request, limit = size
    return [
        Rule(request.nanos / _NANOS, f"proposed request {request}"),
        Rule(limit.nanos / _NANOS, f"proposed limit {limit}"),
    ]


def rules(now: Sequence[Rule], proposed: Sequence[Rule], points: Points) -> list[Rule]:
    """Return the lines across a plot. Sizes of now that are far above everything else are left
    out: the course would be flat."""
    top = max([*(each for each in points if each is not None), *(each.value for each in proposed)])
    return [*(each for each in now if each.value <= _FAR * top), *proposed]


def drawn(
    title: str, course: Mapping[str, Any], resource: str, now: Sequence[Rule], size: Size
) -> Iterator[str]:
    """Return the lines of one plot."""
    points = course.get(resource, {}).get("max")
    if not points or all(each is None for each in points):
        yield f"{title}: its node does not know the course any more"
        return
    begin = next(at for at, each in enumerate(points) if each is not None)
    points, step = points[begin:], int(course["step"].removesuffix("s"))
    start = parse_time(course["starttime"]) + timedelta(seconds=begin * step)
    declared = ", ".join(each.label for each in now) or "none"
    yield f"{title}: the maximum of each {human_age(step)}; now: {declared}"
    columns = shutil.get_terminal_size().columns
    yield from Plot(
        width=max(_NARROWEST, columns - _MARGIN),
        height=_HEIGHT,
        amount=_cores if resource == "cpu" else _bytes,
        start=f"{start:%H:%M:%S}",
        end=f"{start + timedelta(seconds=len(points) * step):%H:%M:%S} UTC",
        draw=plot.glyphs(sys.stdout.encoding),
    ).lines(points, rules(now, _sizes_proposed(size), points))


def _cores(value: float) -> str:
    return f"{round(value * 1000)}m"


def _bytes(value: float) -> str:
    return f"{round(value / 2**20)}Mi"
