"""The quota usage of a Pod: its count, and the requests and limits of its containers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from msgspec.structs import replace

from kedge.api.core_v1.pod.affinity import PodAffinityTerm
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar, pod_level, pod_requests, qos_class, total
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.api.core_v1.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    LIMITS_PREFIX,
    MEMORY,
    PODS,
    REQUESTS_PREFIX,
    is_extended,
    is_hugepages,
    is_native,
)
from kedge.api.core_v1.resource_quota import (
    BEST_EFFORT,
    CROSS_NAMESPACE,
    NOT_BEST_EFFORT,
    NOT_TERMINATING,
    PRIORITY_CLASS,
    TERMINATING,
)
from kedge.api.quota.count import count_name
from kedge.api.quota.measure import ONE, QuotaMeasure
from kedge.machinery.durations import parse_time
from kedge.machinery.quantity import Quantity

Amounts = Mapping[str, Quantity]
Bound = Literal["requests", "limits"]

_COUNT = count_name("", "pods")
_COMPUTE = (CPU, MEMORY, EPHEMERAL_STORAGE)
_PREFIXES = ("", REQUESTS_PREFIX, LIMITS_PREFIX)
_NAMES = frozenset((_COUNT, PODS, *(prefix + name for prefix in _PREFIXES for name in _COMPUTE)))
_HUGEPAGES = (HUGEPAGES_PREFIX, REQUESTS_PREFIX + HUGEPAGES_PREFIX)
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
_MUST_SAY = frozenset(prefix + name for prefix in _PREFIXES for name in (CPU, MEMORY))
"""Names under which nothing is counted unless each container speaks of them."""
_ENDED = ("Succeeded", "Failed")

_ONLY_THERE = {_COUNT: ONE}
_SAYS_NOTHING = {_COUNT: ONE, PODS: ONE}


class PodQuotaMeter:
    """The meter of pods."""

    known = frozenset(
        (
            TERMINATING,
            NOT_TERMINATING,
            BEST_EFFORT,
            NOT_BEST_EFFORT,
            PRIORITY_CLASS,
            CROSS_NAMESPACE,
        )
    )
    looks = True

    def names(self, hard: Iterable[str]) -> frozenset[str]:
        return frozenset(
            name
            for name in hard
            if name in _NAMES or name.startswith(_HUGEPAGES) or _is_device_request(name)
        )

    def measure(self, obj: Pod) -> QuotaMeasure:
        scopes = dict(_scopes(obj))
        if obj.status.phase in _ENDED:
            return QuotaMeasure(_ONLY_THERE, scopes)
        usage = _usage(obj)
        grace = obj.metadata.deletionGracePeriodSeconds
        if not obj.metadata.deletionTimestamp or grace is None:
            return QuotaMeasure(usage, scopes)
        # A pod whose node never reports its end must not keep others from starting.
        try:
            until = parse_time(obj.metadata.deletionTimestamp) + timedelta(seconds=grace)
        except OverflowError:
            return QuotaMeasure(usage, scopes)
        return QuotaMeasure(usage, scopes, until, _ONLY_THERE)

    def missing(self, obj: Pod, names: Iterable[str]) -> str:
        required = sorted(_MUST_SAY.intersection(names))
        if not required or _speaks_as_a_whole(obj.spec):
            return ""
        silent = {name: sorted(_silent(obj.spec, name)) for name in required}
        found = [f"{name} for: {','.join(who)}" for name, who in silent.items() if who]
        return f"must specify {'; '.join(found)}" if found else ""


def is_terminating(pod: Pod) -> bool:
    """Whether the pod ends by itself after a time."""
    deadline = pod.spec.activeDeadlineSeconds
    return deadline is not None and deadline >= 0


def _is_device_request(name: str) -> bool:
    device = name.removeprefix(REQUESTS_PREFIX)
    return device != name and (not is_native(name) or device.startswith(_DEVICE_CLASS))


# Usage.


def _usage(pod: Pod) -> Amounts:
    requests = pod_requests(as_granted(pod, "requests"))
    limits = _limits(as_granted(pod, "limits"))
    if not requests and not limits:
        return _SAYS_NOTHING
    return dict(_named(requests, limits)) | _SAYS_NOTHING


def _named(requests: Amounts, limits: Amounts) -> Iterator[tuple[str, Quantity]]:
    for name, amount in requests.items():
        if name in _COMPUTE or is_hugepages(name):
            yield name, amount
            yield REQUESTS_PREFIX + name, amount
        elif is_extended(name) or name.startswith(_DEVICE_CLASS):
            yield REQUESTS_PREFIX + name, amount
    for name, amount in limits.items():
        if name in _COMPUTE:
            yield LIMITS_PREFIX + name, amount


def _limits(spec: PodSpec) -> dict[str, Quantity]:
    amounts = total(spec, "limits")
    if spec.resources is not None:
        own = spec.resources.limits.items()
        amounts |= {name: amount for name, amount in own if pod_level(name)}
    for name, amount in spec.overhead.items():
        # Overhead on top of no limit at all would make one.
        if amounts.get(name):
            amounts[name] += amount
    return amounts


def as_granted(pod: Pod, bound: Bound) -> PodSpec:
    """The spec with what containers hold, where a resize is not yet what the node has done."""
    status = pod.status
    reported = (*status.containerStatuses, *status.initContainerStatuses)
    known = {each.name: each for each in reported if each.resources is not None}
    if not known:
        return pod.spec
    infeasible = any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in status.conditions
    )

    def granted(container: Container) -> Container:
        status = known.get(container.name)
        if status is None:
            return container
        amounts = _greatest(_held(container, status, bound, infeasible=infeasible))
        return replace(container, resources=replace(container.resources, **{bound: amounts}))

    return replace(
        pod.spec,
        containers=[granted(container) for container in pod.spec.containers],
        initContainers=[
            granted(container) if is_sidecar(container) else container
            for container in pod.spec.initContainers
        ],
    )


def _held(
    container: Container, status: ContainerStatus, bound: Bound, *, infeasible: bool
) -> Iterator[Amounts]:
    if not infeasible:
        yield getattr(container.resources, bound)
    yield getattr(status.resources, bound)
    if bound == "requests":
        yield status.allocatedResources


def _greatest(parts: Iterable[Amounts]) -> dict[str, Quantity]:
    result: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            if name not in result or result[name] < amount:
                result[name] = amount
    return result


# Resources that containers must specify.


def _speaks_as_a_whole(spec: PodSpec) -> bool:
    own = spec.resources
    return own is not None and any(pod_level(name) for name in (*own.requests, *own.limits))


def _silent(spec: PodSpec, name: str) -> Iterator[str]:
    """The containers that say nothing about what a quota counts under the name."""
    limited = name.startswith(LIMITS_PREFIX)
    asked = name.removeprefix(LIMITS_PREFIX).removeprefix(REQUESTS_PREFIX)
    for container in (*spec.containers, *spec.initContainers):
        resources = container.resources
        if asked not in (resources.limits if limited else resources.requests):
            yield container.name


# Scopes.


def _scopes(pod: Pod) -> Iterator[tuple[str, Sequence[str]]]:
    yield (TERMINATING if is_terminating(pod) else NOT_TERMINATING), ()
    best_effort = (pod.status.qosClass or qos_class(pod)) == BEST_EFFORT
    yield (BEST_EFFORT if best_effort else NOT_BEST_EFFORT), ()
    if pod.spec.priorityClassName:
        yield PRIORITY_CLASS, (pod.spec.priorityClassName,)
    if any(term.namespaces or term.namespaceSelector is not None for term in _terms(pod.spec)):
        yield CROSS_NAMESPACE, ()


def _terms(spec: PodSpec) -> Iterator[PodAffinityTerm]:
    if spec.affinity is None:
        return
    for side in (spec.affinity.podAffinity, spec.affinity.podAntiAffinity):
        if side is not None:
            yield from side.requiredDuringSchedulingIgnoredDuringExecution
            for wish in side.preferredDuringSchedulingIgnoredDuringExecution:
                yield wish.podAffinityTerm
