"""Usage of groups of pods as rows of a table: Deployments, namespaces, Services and others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kedge.api.metrics_v1alpha1 import aggregate
from kedge.api.metrics_v1alpha1.aggregate import UsageAggregate, UsageDistribution
from kedge.api.metrics_v1alpha1.windows import cores, megabytes
from kedge.api.model import ResourceList
from kedge.api.resource import Resource
from kedge.cli.usage import detail_columns
from kedge.cli.usage.lines import NOTHING, TopOptions, statistic
from kedge.machinery.quantity import Quantity

_SHORT_NAMES: Final = {
    "cronjobs": ("cj",),
    "daemonsets": ("ds",),
    "deployments": ("deploy",),
    "namespaceusages": ("namespaces", "namespace", "ns"),
    "qosclasses": ("qos",),
    "replicasets": ("rs",),
    "replicationcontrollers": ("rc",),
    "services": ("svc",),
    "statefulsets": ("sts",),
}
KINDS: Final[Mapping[str, Resource[UsageAggregate]]] = {
    name: each
    for each in aggregate.RESOURCES
    for name in (each.plural, each.singular, *_SHORT_NAMES.get(each.plural, ()))
}
"""The resource of each name that the command line accepts."""


def ordered(found: Iterable[UsageAggregate], look: TopOptions) -> list[UsageAggregate]:
    by_name = sorted(found, key=lambda each: (each.metadata.namespace, each.metadata.name))
    if look.sort_by == "name":
        return by_name
    return sorted(by_name, key=lambda each: -_used(each, look).get(look.sort_by, NOTHING).nanos)


def table(found: Sequence[UsageAggregate], look: TopOptions) -> list[str]:
    """The lines of text."""
    rows = [_heading(look)] if look.headings else []
    rows += [_cells(each, look) for each in ordered(found, look)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]


def documents(found: Iterable[UsageAggregate], look: TopOptions) -> dict[str, Any]:
    """The same for programs."""
    return {
        "window": look.window,
        "statistic": look.statistic,
        "items": [_document(each, look) for each in ordered(found, look)],
    }


def _heading(look: TopOptions) -> list[str]:
    shown = ["NAMESPACE"] if look.everywhere and not _of_namespaces(look) else []
    shown += [KINDS[look.what].kind.removesuffix("Usage").upper(), "PODS", "CPU", "MEM"]
    shown += ["CPU/POD", "MEM/POD"]
    return shown + (["CPU MOST", "MEM MOST", *detail_columns.HEADINGS] if look.wide else [])


def _cells(found: UsageAggregate, look: TopOptions) -> list[str]:
    meta, used = found.metadata, _used(found, look)
    shown = [meta.namespace] if look.everywhere and not _of_namespaces(look) else []
    shown += [meta.name, str(found.pods), cores(used.get("cpu")), megabytes(used.get("memory"))]
    shown += [_each(found, used, "cpu", cores), _each(found, used, "memory", megabytes)]
    if look.wide:
        most = found.distribution.get(look.window, UsageDistribution()).max
        shown += [cores(most.get("cpu")), megabytes(most.get("memory"))]
        shown += detail_columns.cells(used)
    return shown


def _of_namespaces(look: TopOptions) -> bool:
    return KINDS[look.what] is aggregate.NAMESPACES


def _used(found: UsageAggregate, look: TopOptions) -> ResourceList:
    return statistic(found.total, look)


def _each(found: UsageAggregate, used: ResourceList, resource: str, shown: Any) -> str:
    """The share of one pod, on average."""
    amount = used.get(resource)
    if amount is None or not found.pods:
        return "-"
    return str(shown(Quantity(amount.nanos // found.pods, amount.format)))


def _document(found: UsageAggregate, look: TopOptions) -> dict[str, Any]:
    lower = found.lowerBounds.get(look.window)
    bounds = {} if lower is None else {"max": lower.max, "95th": lower.ninety_fifth}
    made = {"namespace": found.metadata.namespace, "name": found.metadata.name, "pods": found.pods}
    made["usage"] = _text(_used(found, look))
    if look.statistic in bounds:
        made["atLeast"] = _text(bounds[look.statistic])
    return made


def _text(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
