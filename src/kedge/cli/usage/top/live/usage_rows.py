"""UsageRow: a line of the live view, and which lines are shown in which order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.api.metrics_v1alpha1.node import Node
from kedge.api.metrics_v1alpha1.pod import Pod, windows_of
from kedge.api.metrics_v1alpha1.windows import Windows
from kedge.api.model import ResourceList
from kedge.cli.usage.lines import TopOptions, statistic
from kedge.cli.usage.top.live.facts import (
    NANOS,
    NO_LOAD,
    NodeFacts,
    PodFacts,
    ResourceBounds,
    device_text,
    node_loads,
)
from kedge.cli.usage.top.live.view_state import Level, ViewState

NO_NODE: Final = "<none>"
"""The line for pods that wait for a node."""


class UsageAmount(NamedTuple):
    """The usage of a resource, and what it is compared with. None is not known, or not set."""

    used: float | None = None
    request: float | None = None
    limit: float | None = None

    @property
    def share(self) -> float | None:
        """Of the limit, else of the request."""
        of = self.limit or self.request
        return self.used / of if of and self.used is not None else None


class UsageRow(NamedTuple):
    """One line."""

    key: str
    """NODE, NAMESPACE/POD or NAMESPACE/POD/CONTAINER."""
    namespace: str = ""
    name: str = ""
    """Of the node, the pod or, if all lines are of one pod, the container."""
    status: str = ""
    is_well: bool = True
    restarts: int = 0
    pods: int | None = None
    """Of a node, if those of all namespaces are known."""
    cpu: UsageAmount = UsageAmount()
    memory: UsageAmount = UsageAmount()
    node: str = ""
    devices: str = ""


class UsageObjects(NamedTuple):
    """All that is known about a cluster, or about one namespace of it."""

    nodes: Mapping[str, NodeFacts]
    node_usage: Mapping[str, Node]
    pods: Mapping[str, PodFacts]
    """By namespace/name."""
    pod_usage: Mapping[str, Pod]
    has_all_pods: bool = True
    """Whether the pods are those of all namespaces."""


def rows(objects: UsageObjects, state: ViewState) -> list[UsageRow]:
    """Return the lines that match the filter, in their order."""
    look = TopOptions(window=state.window, statistic=state.statistic)
    make = {Level.NODES: _nodes, Level.PODS: _pods, Level.CONTAINERS: _containers}
    found = make[state.place.level](objects, state, look)
    words = state.place.filter.lower().split()
    matching = [each for each in found if _matches(each, words)] if words else [*found]
    return ordered(matching, state)


def _matches(row: UsageRow, words: Sequence[str]) -> bool:
    text = f"{row.key} {row.status} {row.node} {row.devices}".lower()
    return all(word in text for word in words)


def ordered(found: Sequence[UsageRow], state: ViewState) -> list[UsageRow]:
    """Return the lines sorted; those without a value are last in both directions."""
    by_name = sorted(found, key=lambda row: row.key)
    value = _VALUES[state.sort.column]
    known = [row for row in by_name if value(row) is not None]
    known.sort(key=value, reverse=state.sort.descending)
    return known + [row for row in by_name if value(row) is None]


_VALUES: Final[Mapping[str, Callable[[UsageRow], Any]]] = {
    "name": lambda row: row.key,
    "status": lambda row: (row.is_well, row.status),
    "restarts": lambda row: row.restarts,
    "pods": lambda row: row.pods,
    "cpu": lambda row: row.cpu.used,
    "cpu%": lambda row: row.cpu.share,
    "memory": lambda row: row.memory.used,
    "memory%": lambda row: row.memory.share,
    "node": lambda row: row.node,
}
"""By column: the value to sort by. The status begins with what is not well."""


def _nodes(objects: UsageObjects, state: ViewState, look: TopOptions) -> Iterator[UsageRow]:
    # The pods of one namespace are not all that a node has promised room to.
    loads = node_loads(objects.pods.values()) if objects.has_all_pods else None
    for name in objects.nodes.keys() | objects.node_usage.keys():
        node, usage = objects.nodes.get(name), objects.node_usage.get(name)
        load = None if loads is None else loads.get(name, NO_LOAD)
        used = statistic(usage.machine, look) if usage else {}
        yield UsageRow(
            key=name,
            name=name,
            status=node.status if node else "",
            is_well=node.is_well if node else True,
            pods=load.pods if load else None,
            cpu=_amount(used, "cpu", ResourceBounds(load and load.cpu, node and node.cpu)),
            memory=_amount(
                used, "memory", ResourceBounds(load and load.memory, node and node.memory)
            ),
            devices=device_text(node.devices, load and load.devices) if node else "",
        )
    if waiting := sum(_is_on(pod, NO_NODE) for pod in objects.pods.values()):
        yield UsageRow(key=NO_NODE, name=NO_NODE, status="Pending", is_well=False, pods=waiting)


def _is_on(pod: PodFacts, node: str) -> bool:
    """Whether a pod is on a node; a finished pod does not wait for one."""
    return not pod.node and not pod.is_finished if node == NO_NODE else pod.node == node


def _pods(objects: UsageObjects, state: ViewState, look: TopOptions) -> Iterator[UsageRow]:
    for key, pod in objects.pods.items():
        if state.place.node and not _is_on(pod, state.place.node):
            continue
        usage = objects.pod_usage.get(key)
        used = statistic(windows_of(usage), look) if usage else {}
        yield UsageRow(
            key=key,
            namespace=pod.namespace,
            name=pod.name,
            status=pod.status,
            is_well=pod.is_well,
            restarts=pod.restarts,
            cpu=_amount(used, "cpu", pod.cpu),
            memory=_amount(used, "memory", pod.memory),
            node=pod.node,
            devices=device_text(pod.devices),
        )


def _containers(objects: UsageObjects, state: ViewState, look: TopOptions) -> Iterator[UsageRow]:
    for key, pod in objects.pods.items():
        if state.place.pod and key != state.place.pod:
            continue
        windows = container_windows(objects.pod_usage.get(key))
        for each in pod.containers:
            used = statistic(windows.get(each.name, {}), look)
            yield UsageRow(
                key=f"{key}/{each.name}",
                namespace=pod.namespace,
                name=each.name if state.place.pod else f"{pod.name}/{each.name}",
                status=each.status,
                is_well=each.is_well,
                restarts=each.restarts,
                cpu=_amount(used, "cpu", each.cpu),
                memory=_amount(used, "memory", each.memory),
                node=pod.node,
                devices=each.devices,
            )


def container_windows(usage: Pod | None) -> Mapping[str, Windows]:
    """Return the usage of each container."""
    return {each.metadata.name: each.metrics for each in usage.containers} if usage else {}


def _amount(used: ResourceList, resource: str, bounds: ResourceBounds) -> UsageAmount:
    found = used.get(resource)
    return UsageAmount(None if found is None else found.nanos / NANOS, *bounds)
