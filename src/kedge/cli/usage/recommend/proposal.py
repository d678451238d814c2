"""Requests and limits proposed from the measured usage, as a patch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.core_v1.pod.resources import qos_class
from kedge.api.metrics_v1alpha1.pod import Pod
from kedge.api.metrics_v1alpha1.windows import Metrics
from kedge.cli.objects.targets import ObjectTarget
from kedge.machinery.durations import human_age, parse_time
from kedge.machinery.quantity import Format, Quantity
from kedge.metrics.windows import DAY, HOUR, TICK_SECONDS

STORAGE: Final = "ephemeral-storage"
_LEAST: Final = {"cpu": 1_000_000, "memory": 1 << 20, STORAGE: 1 << 20}
"""The steps in which amounts are proposed: a thousandth of a core (in nanos), a mebibyte."""
_SMALLEST: Final = {"cpu": 10, "memory": 16, STORAGE: 16}
"""The least that is proposed, in steps."""
RESOURCES: Final = tuple(_LEAST)
_LEAST_RUNS: Final = 3
"""Runs of a CronJob that are enough, however short they are."""
_LONG: Final = ("1h", "1d")
_THROTTLED: Final = 0.05
"""The share of periods from which on the cpu limit, not the need, has decided the usage."""


class UsageEvidence(NamedTuple):
    """The pods' usage of one resource in one container."""

    window: str
    seconds: int
    """How much time has been seen."""
    pods: int
    usual: Quantity
    """The greatest of the 95th percentiles."""
    most: Quantity


class DeclaredSizes(NamedTuple):
    """A container as it is declared now."""

    among: str
    """In which list of the pod: containers, or initContainers for one that stays beside them."""
    resources: Mapping[str, Any]


def containers(target: ObjectTarget, document: Mapping[str, Any]) -> dict[str, DeclaredSizes]:
    """The containers by name; those that only prepare the others are over before they count."""
    inner = pod_spec(target, document)
    return {
        each["name"]: DeclaredSizes(among, each.get("resources") or {})
        for among in ("containers", "initContainers")
        for each in inner.get(among) or ()
        if among == "containers" or each.get("restartPolicy") == "Always"
    }


def pod_spec(target: ObjectTarget, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a document that describes its pods."""
    found: Mapping[str, Any] = document
    for field in _path(target):
        found = found[field]
    return found


def _path(target: ObjectTarget) -> tuple[str, ...]:
    """Return the fields that lead to the description of the pods."""
    match target.resource.kind:
        case "Pod":
            return ("spec",)
        case "CronJob":
            return ("spec", "jobTemplate", "spec", "template", "spec")
        case _:
            return ("spec", "template", "spec")


def kept_class(target: ObjectTarget, document: Mapping[str, Any]) -> str:
    """The class of service that a pod has, since none can be resized into another."""
    if target.resource.kind != "Pod":
        return ""
    return qos_class(core_pod.RESOURCE.from_document(dict(document)))


def evidence(pods: Sequence[Pod], container: str) -> dict[str, UsageEvidence]:
    """Return the usage of a container, by resource."""
    seen = [
        each.metrics for pod in pods for each in pod.containers if each.metadata.name == container
    ]
    seen_seconds = max((_span(windows["1d"]) for windows in seen if "1d" in windows), default=0)
    length = "1d" if seen_seconds > HOUR else "1h"
    chosen = [windows[length] for windows in seen if length in windows]
    found = {}
    for resource in RESOURCES:
        usual = [each.ninety_fifth[resource] for each in chosen if resource in each.ninety_fifth]
        most = [each.max[resource] for each in chosen if resource in each.max]
        if usual and most:
            seconds = min(seen_seconds, HOUR if length == "1h" else DAY)
            found[resource] = UsageEvidence(length, seconds, len(usual), max(usual), max(most))
    return found


def _span(window: Metrics) -> int:
    if not window.starttime:
        return DAY
    return int((parse_time(window.endtime) - parse_time(window.starttime)).total_seconds())


class ContainerTrouble(NamedTuple):
    """Signs that a limit, and not the need, has decided the usage of a container."""

    kills: int = 0
    """Processes killed in the last day because memory ran out."""
    throttled: float = 0.0
    """The greatest share of periods in which the cpu limit held a pod back."""


def trouble(pods: Sequence[Pod], container: str) -> ContainerTrouble:
    """Return the kills and the throttling of a container in all pods."""
    kills, throttled = 0, 0.0
    for pod in pods:
        for each in pod.containers:
            if each.metadata.name == container:
                kills += _kills(each.metrics.get("1d"))
                shares = (_number(each.metrics.get(length), "cpu-throttled") for length in _LONG)
                throttled = max(throttled, *shares)
    return ContainerTrouble(kills, throttled)


def _kills(day: Metrics | None) -> int:
    rate = _number(day, "oom-kills")
    return max(1, round(rate * _span(day))) if day is not None and rate else 0


def _number(window: Metrics | None, resource: str) -> float:
    found = window.mean.get(resource) if window is not None else None
    return found.nanos / 1_000_000_000 if found is not None else 0.0


def least_limits(
    declared: DeclaredSizes, found: ContainerTrouble, headroom: int
) -> dict[str, Quantity]:
    """Return the limits that must not be proposed lower: one that was reached has cut off the
    usage, so the maximum says nothing about the need."""
    limits = declared.resources.get("limits") or {}
    reached = {"memory": found.kills > 0, "cpu": found.throttled >= _THROTTLED}
    return {
        resource: _rounded(resource, Quantity.of(limits[resource]).nanos * (100 + headroom) // 100)
        for resource, is_reached in reached.items()
        if is_reached and resource in limits
    }


Size = tuple[Quantity, Quantity]
"""A request and a limit."""
Sizes = Mapping[str, Mapping[str, Size]]
"""By container, by resource."""


def sized(
    found: Mapping[str, Mapping[str, UsageEvidence]],
    headroom: int,
    class_: str = "",
    least: Mapping[str, Mapping[str, Quantity]] | None = None,
) -> dict[str, dict[str, Size]]:
    """Return the proposed sizes; those of a pod keep its QoS class. `least` has the least limits,
    by container and resource."""
    sizes = {
        name: {
            each: _with_limit(proposed(each, what, headroom), (least or {}).get(name, {}).get(each))
            for each, what in known.items()
        }
        for name, known in found.items()
        if known
    }
    if class_ == "Guaranteed":
        return {
            name: {each: (limit, limit) for each, (_, limit) in known.items()}
            for name, known in sizes.items()
        }
    pairs = [pair for known in sizes.values() for pair in known.values()]
    if class_ == "Burstable" and all(request == limit for request, limit in pairs):
        # The least room between the two is what tells the classes apart.
        for known in sizes.values():
            if "cpu" in known:
                request, limit = known["cpu"]
                known["cpu"] = request, limit + Quantity.from_milli(1)
    return sizes


def _with_limit(size: Size, least: Quantity | None) -> Size:
    request, limit = size
    return request, limit if least is None else max(limit, least)


def resizable(sizes: Sizes) -> dict[str, dict[str, Size]]:
    """Return the sizes that a pod accepts while it runs: all but those of ephemeral storage."""
    return {
        name: {each: size for each, size in known.items() if each != STORAGE}
        for name, known in sizes.items()
    }


def proposed(resource: str, found: UsageEvidence, headroom: int) -> Size:
    """The request and the limit."""
    request = _rounded(resource, found.usual.nanos)
    limit = _rounded(resource, found.most.nanos * (100 + headroom) // 100)
    return request, max(request, limit)


def _rounded(resource: str, nanos: int) -> Quantity:
    """Return an amount in steps that people read, and not less than what is proposed at all."""
    return _amount(resource, max(_steps(resource, nanos), _SMALLEST[resource]))


def _steps(resource: str, nanos: int) -> int:
    used = nanos if resource == "cpu" else -(-nanos // 1_000_000_000)
    return -(-used // _LEAST[resource])


def _amount(resource: str, steps: int) -> Quantity:
    if resource == "cpu":
        return Quantity.from_milli(steps)
    return Quantity.from_value(steps * _LEAST[resource], Format.BINARY_SI)


def patch(
    target: ObjectTarget, namespace: str, declared: Mapping[str, DeclaredSizes], sizes: Sizes
) -> dict[str, Any]:
    """Return the patch to apply with kubectl."""
    inner: dict[str, list[Any]] = {}
    for name, known in sizes.items():
        now = declared[name].resources
        resources = {
            "requests": {each: str(request) for each, (request, _) in known.items()},
            "limits": {
                each: str(limit) for each, (_, limit) in known.items() if has_limit(now, each)
            },
        }
        among = inner.setdefault(declared[name].among, [])
        among.append({"name": name, "resources": resources})
    nested: dict[str, Any] = dict(inner)
    for field in reversed(_path(target)):
        nested = {field: nested}
    return {
        "apiVersion": target.resource.api_version,
        "kind": target.resource.kind,
        "metadata": {"name": target.name, "namespace": namespace},
        **nested,
    }


def has_limit(declared: Mapping[str, Any], resource: str) -> bool:
    """Whether a limit is proposed. One of storage is only changed: files and logs may grow slower
    than the windows are long, and the pod is evicted when they reach a limit."""
    return resource != STORAGE or resource in (declared.get("limits") or {})


class WorkloadUsage(NamedTuple):
    """A workload or pod, and what its pods used."""

    target: ObjectTarget
    namespace: str
    document: Mapping[str, Any]
    pods: Sequence[Pod]
    reason: str = ""
    """Why nothing is known of its pods; empty if something is."""

    @property
    def title(self) -> str:
        return f"{self.target.resource.singular}/{self.target.name}"


class SizeProposal(NamedTuple):
    """The sizes proposed for one workload or pod, with the evidence."""

    workload: WorkloadUsage
    class_: str
    """The QoS class that a pod keeps; empty for a workload."""
    declared: Mapping[str, DeclaredSizes]
    found: Mapping[str, Mapping[str, UsageEvidence]]
    troubles: Mapping[str, ContainerTrouble]
    sizes: Sizes
    headroom: int

    @property
    def seconds(self) -> int:
        """How much time has been seen of the container that was seen longest."""
        return max(
            (each.seconds for known in self.found.values() for each in known.values()), default=0
        )

    @property
    def until(self) -> str:
        """When the newest window ended."""
        ends = (
            window.endtime
            for pod in self.workload.pods
            for each in pod.containers
            for window in each.metrics.values()
        )
        return max(ends, default="")

    @property
    def is_changeable(self) -> bool:
        """Whether the server lets the sizes be changed: not those of a Job's pods, nor of a pod
        that has requested nothing."""
        return self.workload.target.resource.kind != "Job" and self.class_ != "BestEffort"

    @property
    def runs_for_a_time(self) -> bool:
        """Whether its pods end by themselves."""
        return self.workload.target.resource.kind in ("Job", "CronJob")

    def patch(self) -> dict[str, Any]:
        workload = self.workload
        return patch(workload.target, workload.namespace, self.declared, self.sizes)

    def comments(self) -> Iterator[str]:
        """Return the evidence, and how to apply the patch, as lines of YAML."""
        target = self.workload.target
        yield from comments(
            target, self.class_, self.declared, self.found, self.sizes, self.headroom
        )
        for name, found in self.troubles.items():
            limits = self.declared[name].resources.get("limits") or {}
            if found.kills:
                yield (
                    f"# {name}: {_processes(found.kills)} killed in the last day because memory ran"
                    f" out{'; the limit is raised' if 'memory' in limits else ''}"
                )
            if found.throttled >= _THROTTLED:
                yield (
                    f"# {name}: the cpu limit held it back in {found.throttled:.0%} of the periods"
                    f"{'; the limit is raised' if 'cpu' in limits else ''}"
                )


def propose(workload: WorkloadUsage, headroom: int) -> SizeProposal:
    """Return the proposal for a workload; it has no sizes if nothing was measured."""
    target, document = workload.target, workload.document
    declared = containers(target, document)
    found = {name: evidence(workload.pods, name) for name in declared}
    troubles = {name: trouble(workload.pods, name) for name in declared}
    class_ = kept_class(target, document)
    least = {name: least_limits(declared[name], troubles[name], headroom) for name in declared}
    sizes = sized(found, headroom, class_, least)
    if target.resource.kind == "Pod":
        sizes = resizable(sizes)
    return SizeProposal(workload, class_, declared, found, troubles, sizes, headroom)


def lack(proposal: SizeProposal, least_seconds: float) -> str:
    """Return why a workload gets no proposal; empty if the evidence is enough."""
    if proposal.workload.reason:
        return proposal.workload.reason
    if not any(proposal.sizes.values()):
        return "nothing has been measured of its pods yet"
    if proposal.workload.target.resource.kind == "Job":
        # It runs once, so there is nothing to wait for.
        return ""
    if proposal.workload.target.resource.kind == "CronJob":
        return _lack_of_runs(proposal, least_seconds)
    if proposal.seconds < least_seconds:
        return (
            f"measured for {human_age(proposal.seconds)} only, less than"
            f" {human_age(int(least_seconds))} (--min-evidence)"
        )
    return ""


def _lack_of_runs(proposal: SizeProposal, least_seconds: float) -> str:
    """Return why the runs of a CronJob are too few: they may be short, so their number counts."""
    pods = proposal.workload.pods
    windows = [each.metrics.get("1d") for pod in pods for each in pod.containers[:1]]
    seen = [_span(window) for window in windows if window is not None]
    if len(pods) >= _LEAST_RUNS or sum(seen) >= least_seconds:
        return ""
    return f"measured in {len(pods)} of {_LEAST_RUNS} runs (--min-evidence)"


def samples(found: UsageEvidence) -> int:
    """Return of how many ten-second means of each pod the 95th percentile is."""
    return found.seconds // TICK_SECONDS


def _processes(number: int) -> str:
    return "1 process was" if number == 1 else f"{number} processes were"


def comments(
    target: ObjectTarget,
    class_: str,
    declared: Mapping[str, DeclaredSizes],
    found: Mapping[str, Mapping[str, UsageEvidence]],
    sizes: Sizes,
    headroom: int,
) -> Iterator[str]:
    yield f"# {how(target, class_)}"
    for name, known in found.items():
        if not known:
            yield f"# {name}: nothing has been reported of it"
        for resource, seen in known.items():
            change = "a pod that runs keeps its own"
            if resource in sizes[name]:
                change = _change(
                    declared[name].resources, resource, sizes[name][resource], headroom
                )
            yield (
                f"# {name} {resource}: 95th {readable(resource, seen.usual)}, max"
                f" {readable(resource, seen.most)} in the {seen.window} window"
                f" ({human_age(seen.seconds)} seen, {pods_text(seen.pods)}); {change}"
            )


def _change(now: Mapping[str, Any], resource: str, size: Size, headroom: int) -> str:
    request, limit = size
    changed = f"request {declared_text(now, 'requests', resource)} -> {request}, limit"
    if not has_limit(now, resource):
        return f"{changed} none (a pod that exceeds one is evicted)"
    return f"{changed} {declared_text(now, 'limits', resource)} -> {limit} (max + {headroom}%)"


def readable(resource: str, used: Quantity) -> Quantity:
    return _amount(resource, _steps(resource, used.nanos))


def how(target: ObjectTarget, class_: str) -> str:
    """Return how to apply the patch."""
    if target.resource.kind == "Job":
        return "The pods of a Job cannot be changed: use this in the manifest of the next Job"
    if class_ == "BestEffort":
        return (
            "A pod that has asked for nothing cannot be resized: have this in the manifest of the"
            " next one, or of what makes it"
        )
    resize = " --subresource resize" if class_ else ""
    what = f"{target.resource.singular}/{target.name}"
    return f"Apply with: kubectl patch {what}{resize} --patch-file FILE"


def declared_text(resources: Mapping[str, Any], sort: str, resource: str) -> str:
    return str((resources.get(sort) or {}).get(resource, "none"))


def pods_text(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
