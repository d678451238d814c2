"""`kedge why POD --slow`: collect what was measured, and print why the pod is slow."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kedge.api.apps_v1 import replica_set
from kedge.api.core_v1 import node as core_node
from kedge.api.core_v1.node_types import Node as CoreNode
from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.core_v1.pod.pod import Pod as CorePod
from kedge.api.metrics_v1alpha1 import node, pod
from kedge.api.metrics_v1alpha1.pod import Pod, windows_of
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import outputs, tabstops
from kedge.cli.pods.why.remedy import Remedy
from kedge.cli.pods.why.show import pod_name
from kedge.cli.pods.why.slow_subject import number, seconds, subjects
from kedge.cli.pods.why.slowness import PodNode, SlowFinding, findings
from kedge.cli.usage.lines import TopOptions, UsageLine, pod_lines
from kedge.machinery.durations import human_age
from kedge.machinery.errors import StatusError

_RESIZABLE: Final = {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"}
"""Owners whose template `kubectl set resources` changes."""
_DENIED: Final = (403, 404)


async def show(connection: ApiSession, word: str, as_json: bool) -> int:
    """Print the causes."""
    found = await _explained(connection, pod_name(word))
    if as_json:
        print(outputs.json_text({"items": [each._asdict() for each in found.causes]}))
    else:
        print("\n".join(laid_out(*found)))
    return 0


async def slow_lines(connection: ApiSession, name: str) -> list[str]:
    """Return why a pod is slow, for people."""
    return [*laid_out(*await _explained(connection, name))]


class _Explained(NamedTuple):
    pod: CorePod
    usage: Pod
    place: PodNode
    causes: Sequence[SlowFinding]


async def _explained(connection: ApiSession, name: str) -> _Explained:
    found = await connection.client.get(core_pod.RESOURCE, name, connection.namespace)
    if not found.spec.nodeName:
        raise Failure(
            f'pod "{name}" has no node yet: "kedge why {name} -n {connection.namespace}" tells why'
        )
    measured = await _measured(connection, name)
    place = await _node(connection, found)
    remedy = Remedy(connection.namespace, name, await _workload(connection, found))
    causes = findings(list(subjects(found, measured)), place, remedy)
    return _Explained(found, measured, place, causes)


async def _measured(connection: ApiSession, name: str) -> Pod:
    try:
        return await connection.client.get(pod.RESOURCE, name, connection.namespace)
    except StatusError as error:
        if error.code != 404:
            raise
        raise Failure(
            f'nothing has been reported of pod "{name}": a pod is measured from ten seconds after'
            f' its start on; its state: "kubectl -n {connection.namespace} describe pod {name}"'
        ) from None


async def _node(connection: ApiSession, found: CorePod) -> PodNode:
    """Fetch the node and the neighbours, as far as the caller may read them."""
    name = found.spec.nodeName
    usage = await _permitted(connection, node.RESOURCE, name)
    known: CoreNode | None = await _permitted(connection, core_node.RESOURCE, name)
    room = known.status.allocatable if known else {}
    near = await _neighbours(connection, found)
    return PodNode(name, usage, number(room, "cpu"), number(room, "memory"), near)


async def _permitted(connection: ApiSession, resource: Any, name: str, namespace: str = "") -> Any:
    try:
        return await connection.client.get(resource, name, namespace)
    except StatusError as error:
        if error.code in _DENIED:
            return None
        raise


async def _neighbours(connection: ApiSession, found: CorePod) -> list[UsageLine]:
    """Fetch the usage of the other pods of the node: of all namespaces, else of this one."""
    for namespace in ("", connection.namespace):
        fields = f"spec.nodeName={found.spec.nodeName}"
        try:
            used = await connection.client.list(pod.RESOURCE, namespace, fields=fields)
            known = await connection.client.list(core_pod.RESOURCE, namespace, fields=fields)
        except StatusError as error:
            if error.code not in _DENIED:
                raise
            continue
        declared = {f"{each.metadata.namespace}/{each.metadata.name}": each for each in known.items}
        lines = pod_lines(used.items, declared, TopOptions(what="pods"))
        own = (found.metadata.namespace, found.metadata.name)
        return [line for line in lines if (line.namespace, line.name) != own]
    return []


async def _workload(connection: ApiSession, found: CorePod) -> str:
    """Return the workload whose template made the pod, such as deployment/web."""
    owner = next((each for each in found.metadata.ownerReferences if each.controller), None)
    if owner is not None and owner.kind == "ReplicaSet":
        made = await _permitted(
            connection, replica_set.RESOURCE, owner.name, found.metadata.namespace
        )
        above = made.metadata.ownerReferences if made else ()
        owner = next((each for each in above if each.controller), owner)
    if owner is None or owner.kind not in _RESIZABLE:
        return ""
    return f"{owner.kind.lower()}/{owner.name}"


def laid_out(
    found: CorePod, measured: Pod, place: PodNode, causes: Sequence[SlowFinding]
) -> Iterator[str]:
    """All of it, for people."""
    yield from tabstops.align(_head(found, measured), tabstops.DESCRIPTION)
    for cause in causes:
        yield ""
        yield f"{cause.summary[0].upper()}{cause.summary[1:]}."
        yield from (f"  {line}" for line in cause.evidence)
        yield f"{cause.advice}:"
        yield f"  {cause.command}"
    if not causes:
        yield ""
        yield "Nothing that was measured explains it: no throttling, no waiting, memory to spare."
        yield f"See where its time goes: kedge top {place.name} -o wide --window 1h --statistic max"
    if not _measures_pressure(place):
        yield ""
        yield f"({place.name} does not report waiting times of pods)"


def _head(found: CorePod, measured: Pod) -> Iterator[str]:
    yield f"Pod:\t{found.metadata.namespace}/{found.metadata.name}"
    yield f"Node:\t{found.spec.nodeName}"
    day = windows_of(measured).get("1d")
    if day is not None:
        yield f"Measured:\t{human_age(int(seconds(day, '1d')))}, until {day.endtime}"


def _measures_pressure(place: PodNode) -> bool:
    """Whether the node reports the pressure of its pods' control groups, if it may be read."""
    if place.usage is None:
        return True
    pods = [each for each in place.usage.systemContainers if each.metadata.name == "pods"]
    means = [name for each in pods for window in each.metrics.values() for name in window.mean]
    return any("-pressure-" in name for name in means)
