"""Conversion of resources in manifests to cgroup limits, as in the kubelet."""

from collections.abc import Iterable
from typing import Final

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import (
    Amounts,
    is_sidecar,
    pod_level,
    pod_requests,
    qos_class,
    total,
)
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.machinery.quantity import Quantity
from kedge.node.runtime.runtime import ContainerLimits

PERIOD: Final = 100_000
"""Microseconds of a scheduling period (cpu.max)."""
LEAST_SHARES: Final = 2
MOST_SHARES: Final = 262_144
_LEAST_QUOTA: Final = 1000
_CRITICAL_PRIORITY: Final = 2_000_000_000
"""Pods of this priority and above are critical."""


def shares(milli_cpu: int) -> int:
    """Return the cpu shares of an amount in millicores."""
    return min(max(milli_cpu * 1024 // 1000, LEAST_SHARES), MOST_SHARES)


def quota(milli_cpu: int) -> int:
    """Return the cpu quota of an amount in millicores, in microseconds per period."""
    return max(milli_cpu * PERIOD // 1000, _LEAST_QUOTA)


def of_container(pod: Pod, container: Container, memory_capacity: int) -> ContainerLimits:
    """Return the limits of a container's cgroup."""
    requests, limits = container.resources.requests, container.resources.limits
    cpu_limit = _milli(limits, "cpu")
    # A limit without a request is also the request; the API defaults it, other sources do not.
    asked = _milli(requests, "cpu") if "cpu" in requests else cpu_limit
    return ContainerLimits(
        cpu_shares=shares(asked),
        cpu_quota=quota(cpu_limit) if cpu_limit else -1,
        cpu_period=PERIOD,
        memory_limit=_bytes(limits, "memory") or -1,
        oom_score_adj=oom_score_adj(pod, container, memory_capacity),
        hugepages=_hugepages(limits),
    )


def of_pod(pod: Pod, pids_limit: int) -> ContainerLimits:
    """Return the limits of a pod's cgroup: a limit applies only if all containers have one."""
    limits = _pod_limits(pod.spec)
    cpu, memory = _milli(limits, "cpu"), _bytes(limits, "memory")
    return ContainerLimits(
        cpu_shares=pod_shares([pod]),
        cpu_quota=quota(cpu) if cpu else -1,
        cpu_period=PERIOD,
        memory_limit=memory or -1,
        pids_limit=pids_limit,
        hugepages=_hugepages(limits),
    )


def pod_shares(pods: Iterable[Pod]) -> int:
    """Return the cpu shares of several pods together."""
    return shares(sum(_milli(pod_requests(pod.spec), "cpu") for pod in pods))


def _pod_limits(spec: PodSpec) -> Amounts:
    """Return the sums of resources that all containers limit, or the limits of the pod itself."""
    containers = (*spec.containers, *spec.initContainers)
    bounded = {
        name: amount
        for name, amount in total(spec, "limits").items()
        if all(container.resources.limits.get(name) for container in containers)
    }
    if spec.resources is not None:
        own = spec.resources.limits.items()
        bounded |= {name: amount for name, amount in own if pod_level(name)}
    for name, amount in spec.overhead.items():
        if name in bounded:
            bounded[name] += amount
    return bounded


def oom_score_adj(pod: Pod, container: Container, memory_capacity: int) -> int:
    """Return the oom_score_adj of a container: the kernel kills processes with higher scores
    first."""
    if (pod.spec.priority or 0) >= _CRITICAL_PRIORITY:
        return -997
    quality = qos_class(pod)
    if quality != "Burstable":
        return -997 if quality == "Guaranteed" else 1000
    score = _burstable_score(pod, container, memory_capacity)
    if is_sidecar(container):
        # A sidecar must not be killed before the containers that depend on it.
        others = (_burstable_score(pod, other, memory_capacity) for other in pod.spec.containers)
        return min(score, *others)
    return score


def _burstable_score(pod: Pod, container: Container, memory_capacity: int) -> int:
    request = _bytes(container.resources.requests, "memory")
    if pod.spec.resources is not None and "memory" in pod.spec.resources.requests:
        request += _spare_of_each(pod.spec)
    score = 1000 - 1000 * request // max(memory_capacity, 1)
    return min(max(score, 3), 999)


def _spare_of_each(spec: PodSpec) -> int:
    """Return each container's share of the pod-level request that exceeds the containers'
    requests."""
    assert spec.resources is not None
    asked = _bytes(spec.resources.requests, "memory") - _bytes(total(spec, "requests"), "memory")
    sidecars = [container for container in spec.initContainers if is_sidecar(container)]
    return max(asked, 0) // (len(spec.containers) + len(sidecars))


def _hugepages(limits: Amounts) -> dict[str, int]:
    found = {}
    for name, amount in limits.items():
        prefix, _, size = name.partition("hugepages-")
        if size and not prefix:
            found[_page_size(size)] = amount.value()
    return found


def _page_size(size: str) -> str:
    """Return a page size such as 2Mi as the kernel's files spell it: 2MB."""
    kilobytes = Quantity.parse(size).value() // 1024
    for unit, factor in (("GB", 2**20), ("MB", 2**10)):
        if kilobytes >= factor:
            return f"{kilobytes // factor}{unit}"
    return f"{kilobytes}KB"


def _milli(amounts: Amounts, name: str) -> int:
    return amounts[name].milli() if name in amounts else 0


def _bytes(amounts: Amounts, name: str) -> int:
    return amounts[name].value() if name in amounts else 0
