"""Usage of nodes and pods as rows of a table: pure functions of the server's objects."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.api.core_v1.node_types import Node as CoreNode
from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.pod import Pod as CorePod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.metrics_v1alpha1.node import Node
from kedge.api.metrics_v1alpha1.pod import Pod, windows_of
from kedge.api.metrics_v1alpha1.windows import Metrics, Windows, added, cores, megabytes
from kedge.api.model import ResourceList
from kedge.cli.usage import detail_columns
from kedge.machinery.quantity import Quantity
from kedge.metrics.windows import MAIN

BARS: Final = "▁▂▃▄▅▆▇█"
NOTHING: Final = Quantity.from_value(0)
NO_RESOURCES: Final = ResourceRequirements()


class TopOptions(NamedTuple):
    """The usage to show, and how."""

    what: str = "nodes"
    """nodes, pods, or the name of a node."""
    everywhere: bool = False
    labels: str = ""
    window: str = MAIN
    statistic: str = "mean"
    sort_by: str = "cpu"
    containers: bool = False
    wide: bool = False
    headings: bool = True
    grouped: bool = False
    """Whether `what` names groups of pods, or claims."""

    @property
    def of_nodes(self) -> bool:
        return self.what in ("nodes", "node", "no")

    @property
    def node(self) -> str:
        """The node whose pods are asked for, if it is that."""
        others = self.of_nodes or self.grouped or self.what in ("pods", "pod", "po")
        return "" if others else self.what

    @property
    def plain(self) -> bool:
        """Whether only names and usage are shown."""
        return bool(self.node) and not self.wide


class UsageLine(NamedTuple):
    """One line: who uses how much, and how much it asked for or has."""

    namespace: str
    name: str
    container: str
    usage: ResourceList
    requests: ResourceList
    limits: ResourceList
    node: str = ""
    """Where a pod runs, if that is known."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}/{self.container}"


def statistic(windows: Windows, look: TopOptions) -> ResourceList:
    """The amounts to show."""
    found = windows.get(look.window, Metrics())
    match look.statistic:
        case "max":
            return found.max
        case "95th":
            return found.ninety_fifth
        case _:
            return found.mean


def node_lines(
    measured: Iterable[Node], known: Mapping[str, CoreNode], look: TopOptions
) -> list[UsageLine]:
    """Nodes: what can be asked of one is its limit."""
    lines = []
    for node in measured:
        name = node.metadata.name
        room = known[name].status.allocatable if name in known else {}
        lines.append(UsageLine("", name, "", statistic(node.machine, look), {}, room))
        if look.containers:
            lines += [
                UsageLine("", name, each.metadata.name, statistic(each.metrics, look), {}, {})
                for each in node.systemContainers
            ]
    return _ordered(lines, look)


def pod_lines(
    measured: Iterable[Pod], known: Mapping[str, CorePod], look: TopOptions
) -> list[UsageLine]:
    """Pods, or each of their containers."""
    lines = []
    for pod in measured:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        declared = known.get(f"{namespace}/{name}")
        node = declared.spec.nodeName if declared else ""
        if look.containers:
            own = {each.name: each.resources for each in _lasting(declared)}
            for each in pod.containers:
                container = each.metadata.name
                asked = own.get(container, NO_RESOURCES)
                used = statistic(each.metrics, look)
                lines.append(
                    UsageLine(namespace, name, container, used, asked.requests, asked.limits, node)
                )
        else:
            used = statistic(windows_of(pod), look)
            lines.append(UsageLine(namespace, name, "", used, *requests_and_limits(declared), node))
    return _ordered(lines, look)


def _lasting(pod: CorePod | None) -> list[Container]:
    """The containers that stay, and so are what is compared with what a pod uses."""
    if pod is None:
        return []
    return [*pod.spec.containers, *filter(is_sidecar, pod.spec.initContainers)]


def requests_and_limits(pod: CorePod | None) -> tuple[ResourceList, ResourceList]:
    """The requests and limits of a pod: its own word, else that of its containers."""
    parts = [each.resources for each in _lasting(pod)]
    requests, limits = added([each.requests for each in parts]), _bounds([x.limits for x in parts])
    own = pod.spec.resources if pod else None
    if own is None:
        return requests, limits
    return {**requests, **own.requests}, {**limits, **own.limits}


def _bounds(limits: Sequence[ResourceList]) -> ResourceList:
    """The limits of a pod: it has one only if all its containers do."""
    total = added(limits)
    return {name: total[name] for name in total if all(name in each for each in limits)}


def _ordered(lines: list[UsageLine], look: TopOptions) -> list[UsageLine]:
    if look.sort_by == "name":
        return sorted(lines, key=lambda line: line.key)
    by = sorted(lines, key=lambda line: line.key)
    return sorted(by, key=lambda line: -line.usage.get(look.sort_by, NOTHING).nanos)


def table(
    lines: Sequence[UsageLine], look: TopOptions, trends: Mapping[str, str] | None
) -> list[str]:
    """The lines of text; `trends` are drawn by key, None leaves them out."""
    rows = [_heading(look, trends)] if look.headings else []
    rows += [_cells(line, look, trends) for line in lines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]


def _heading(look: TopOptions, trends: Mapping[str, str] | None) -> list[str]:
    shown = ["NAMESPACE"] if _spaced(look) else []
    shown.append("NODE" if look.of_nodes else "POD")
    if look.containers:
        shown.append("CONTAINER")
    shown += ["CPU", "MEM"]
    if look.of_nodes:
        shown += ["CPU%", "MEM%"]
    elif not look.plain:
        shown += ["CPU/REQ", "CPU/LIM", "MEM/REQ", "MEM/LIM"]
    if look.wide:
        shown += detail_columns.HEADINGS
    if _placed(look):
        shown.append("NODE")
    return shown + (["CPU TREND"] if trends is not None else [])


def _spaced(look: TopOptions) -> bool:
    return not look.of_nodes and (look.everywhere or (bool(look.node) and look.wide))


def _placed(look: TopOptions) -> bool:
    return look.wide and not look.of_nodes and not look.node


def _cells(line: UsageLine, look: TopOptions, trends: Mapping[str, str] | None) -> list[str]:
    shown = [line.namespace] if _spaced(look) else []
    shown.append(line.name)
    if look.containers:
        shown.append(line.container)
    cpu, memory = line.usage.get("cpu"), line.usage.get("memory")
    shown += [cores(cpu), megabytes(memory)]
    if look.of_nodes:
        shown += [share(cpu, line.limits.get("cpu")), share(memory, line.limits.get("memory"))]
    elif not look.plain:
        shown += [
            share(cpu, line.requests.get("cpu")),
            share(cpu, line.limits.get("cpu")),
            share(memory, line.requests.get("memory")),
            share(memory, line.limits.get("memory")),
        ]
    if look.wide:
        shown += detail_columns.cells(line.usage)
    if _placed(look):
        shown.append(line.node or "-")
    return shown + ([trends.get(line.key, "")] if trends is not None else [])


def share(used: Quantity | None, of: Quantity | None) -> str:
    """Return a share in percent; `-` if it is not known."""
    if used is None or not of:
        return "-"
    return f"{(200 * used.nanos + of.nanos) // (2 * of.nanos)}%"


def sparkline(amounts: Sequence[Quantity]) -> str:
    """Bars between nothing and the greatest of the amounts."""
    top = max((each.nanos for each in amounts), default=0) or 1
    return "".join(BARS[min(each.nanos * len(BARS) // top, len(BARS) - 1)] for each in amounts)


def documents(lines: Sequence[UsageLine], look: TopOptions) -> dict[str, Any]:
    """The same for programs."""
    return {
        "window": look.window,
        "statistic": look.statistic,
        "items": [_document(line, look) for line in lines],
    }


def _document(line: UsageLine, look: TopOptions) -> dict[str, Any]:
    amounts = {
        "usage": line.usage,
        "requests": line.requests,
        "allocatable" if look.of_nodes else "limits": line.limits,
    }
    named = {
        "namespace": line.namespace,
        "name": line.name,
        "container": line.container,
        "node": line.node,
    }
    return {key: value for key, value in named.items() if value} | {
        key: {name: str(amount) for name, amount in value.items()}
        for key, value in amounts.items()
        if value
    }
