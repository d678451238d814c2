"""The requests of workloads before and after a proposal, added up."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kedge.cli.usage.recommend.proposal import DeclaredSizes, SizeProposal
from kedge.machinery.quantity import Format, Quantity

_FORMATS: Final = {"cpu": Format.DECIMAL_SI, "memory": Format.BINARY_SI}
RESOURCES: Final = tuple(_FORMATS)


class RequestChange(NamedTuple):
    """Requests of one resource before and after."""

    before: Quantity
    after: Quantity

    @property
    def saved(self) -> Quantity:
        """The part that becomes free; negative if more is requested."""
        return Quantity(self.before.nanos - self.after.nanos, self.after.format)

    @property
    def text(self) -> str:
        """Such as `1 -> 250m (-75%)`."""
        if self.before.nanos == 0:
            return f"{self.before} -> {self.after}"
        share = (self.after.nanos - self.before.nanos) / self.before.nanos
        return f"{self.before} -> {self.after} ({share:+.0%})"


RequestChanges = Mapping[str, RequestChange]
"""By resource."""


def by_namespace(proposals: Iterable[SizeProposal]) -> dict[str, RequestChanges]:
    """Return the changes of requests by namespace, without pods that run for a time, and pods that
    cannot be changed."""
    grouped: dict[str, list[SizeProposal]] = {}
    for each in proposals:
        if each.is_changeable and not each.runs_for_a_time:
            grouped.setdefault(each.workload.namespace, []).append(each)
    return {name: total(grouped[name]) for name in sorted(grouped)}


def total(proposals: Iterable[SizeProposal]) -> RequestChanges:
    """Return the changes of the requests of all pods of these workloads."""
    before, after = dict.fromkeys(RESOURCES, 0), dict.fromkeys(RESOURCES, 0)
    for each in proposals:
        count = pod_count(each)
        for name, declared in each.declared.items():
            for resource in RESOURCES:
                now = requested(declared, resource)
                proposed = each.sizes.get(name, {}).get(resource)
                before[resource] += count * now
                after[resource] += count * (now if proposed is None else proposed[0].nanos)
    return {
        each: RequestChange(_amount(each, before[each]), _amount(each, after[each]))
        for each in RESOURCES
    }


def added(changes: Iterable[RequestChanges]) -> RequestChanges:
    """Return the sums of several changes."""
    listed = list(changes)
    return {
        each: RequestChange(
            _amount(each, sum(one[each].before.nanos for one in listed)),
            _amount(each, sum(one[each].after.nanos for one in listed)),
        )
        for each in RESOURCES
    }


def _amount(resource: str, nanos: int) -> Quantity:
    return Quantity(nanos, _FORMATS[resource])


def requested(declared: DeclaredSizes, resource: str) -> int:
    """Return the request of a container, in nanos; a limit without a request is one too."""
    resources: Mapping[str, Any] = declared.resources
    for sort in ("requests", "limits"):
        if resource in (resources.get(sort) or {}):
            return Quantity.of(resources[sort][resource]).nanos
    return 0


def pod_count(proposal: SizeProposal) -> int:
    """Return how many pods a workload has at a time."""
    document = proposal.workload.document
    spec, status = document.get("spec") or {}, document.get("status") or {}
    match proposal.workload.target.resource.kind:
        case "Pod":
            return 1
        case "DaemonSet":
            return int(status.get("desiredNumberScheduled", 0))
        case "Job":
            return int(spec.get("parallelism", 1))
        case "CronJob":
            return int((spec.get("jobTemplate") or {}).get("spec", {}).get("parallelism", 1))
        case _:
            return int(spec.get("replicas", 1))
