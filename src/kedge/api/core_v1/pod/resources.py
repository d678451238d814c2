"""The total requests and limits of a pod, and its QoS class."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.resource_names import STORAGE
from kedge.machinery.quantity import Quantity

if TYPE_CHECKING:
    from kedge.api.core_v1.pod.pod import Pod

Amounts = Mapping[str, Quantity]
Bound = Literal["requests", "limits"]

POD_LEVEL = ("cpu", "memory")
"""Resources that a pod can ask for as a whole, huge pages apart."""


def pod_level(resource: str) -> bool:
    """Whether a pod can ask for the resource as a whole."""
    return resource in POD_LEVEL or resource.startswith("hugepages-")


def is_sidecar(container: Container) -> bool:
    """Whether an init container stays on beside the others."""
    return container.restartPolicy == "Always"


def total(spec: PodSpec, bound: Bound) -> dict[str, Quantity]:
    """The most that the pod's containers need at any time: while it starts, or once it runs.

    An init container runs beside the sidecars before it, so those count towards its share.
    """
    running = _sum(getattr(c.resources, bound) for c in spec.containers)
    sidecars: dict[str, Quantity] = {}
    starting: dict[str, Quantity] = {}
    for container in spec.initContainers:
        own: Amounts = getattr(container.resources, bound)
        if is_sidecar(container):
            running = _sum((running, own))
            sidecars = _sum((sidecars, own))
            starting = _greatest(starting, sidecars)
        else:
            starting = _greatest(starting, _sum((own, sidecars)))
    together = _greatest(running, starting)
    # A container that asks for storage asks for just as much ephemeral storage; to a quota the
    # word means what claims ask for.
    together.pop(STORAGE, None)
    return together


def pod_requests(spec: PodSpec) -> dict[str, Quantity]:
    """Return the requests of a pod: its own or its containers', plus its overhead."""
    amounts = total(spec, "requests")
    if spec.resources is not None:
        own = spec.resources.requests.items()
        amounts |= {name: amount for name, amount in own if pod_level(name)}
    return _sum((amounts, spec.overhead)) if spec.overhead else amounts


def qos_class(pod: "Pod") -> str:
    """Guaranteed if everything is limited to what it requests, BestEffort if nothing asks."""
    spec = pod.spec
    if spec.resources is not None:
        parts = [spec.resources]
        limited = not spec.resources.limits or len(_compute(spec.resources.limits)) == 2
    else:
        parts = [c.resources for c in (*spec.containers, *spec.initContainers)]
        limited = all(len(_compute(part.limits)) == 2 for part in parts)
    if not any(_compute(part.requests) or _compute(part.limits) for part in parts):
        return "BestEffort"
    if not limited:
        return "Burstable"
    requests = _sum(_compute(part.requests) for part in parts)
    limits = _sum(_compute(part.limits) for part in parts)
    return "Guaranteed" if requests == limits else "Burstable"


def _compute(amounts: Amounts) -> Amounts:
    return amounts and {
        name: amounts[name] for name in POD_LEVEL if name in amounts and amounts[name].nanos > 0
    }


def _sum(parts: Iterable[Amounts]) -> dict[str, Quantity]:
    result: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            known = result.get(name)
            result[name] = amount if known is None else known + amount
    return result


def _greatest(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    result = dict(one)
    for name, amount in other.items():
        if name not in result or result[name] < amount:
            result[name] = amount
    return result
