"""Facts about pods and nodes for the live view, taken from each object once when it arrives."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kedge.api.core_v1.node_types import Node as CoreNode
from kedge.api.core_v1.pod import columns
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod as CorePod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.api.metrics_v1alpha1.windows import added
from kedge.api.model import ResourceList
from kedge.cli.usage.lines import requests_and_limits

NANOS: Final = 1_000_000_000
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_FINISHED: Final = ("Succeeded", "Failed")


class ResourceBounds(NamedTuple):
    """The request and the limit of a resource; None where there is none."""

    request: float | None = None
    limit: float | None = None


class ContainerFacts(NamedTuple):
    """One container."""

    name: str
    status: str
    restarts: int
    is_well: bool
    cpu: ResourceBounds
    memory: ResourceBounds
    devices: str


class PodFacts(NamedTuple):
    """One pod."""

    namespace: str
    name: str
    node: str
    status: str
    is_well: bool
    """Whether it is ready or has completed."""
    is_finished: bool
    restarts: int
    cpu: ResourceBounds
    memory: ResourceBounds
    devices: Mapping[str, int]
    """The number of devices that its containers ask for, by name."""
    containers: Sequence[ContainerFacts]
    main: str
    """The container that is meant if none is named."""


class NodeFacts(NamedTuple):
    """One node."""

    name: str
    status: str
    is_well: bool
    cpu: float | None
    memory: float | None
    """How much pods may use."""
    devices: Mapping[str, int]


def pod_facts(pod: CorePod) -> PodFacts:
    """Return the facts of a pod."""
    requests, limits = requests_and_limits(pod)
    restarts = sum(each.restartCount for each in _statuses(pod).values())
    containers = [*pod.spec.initContainers, *pod.spec.containers]
    named = pod.metadata.annotations.get(_DEFAULT_CONTAINER, "")
    names = [each.name for each in containers]
    word = columns.status(pod)
    return PodFacts(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.nodeName,
        status=word,
        is_well=word in ("Completed", "Succeeded") or (word == "Running" and _is_ready(pod)),
        is_finished=pod.status.phase in _FINISHED,
        restarts=restarts,
        cpu=_bounds(requests, limits, "cpu"),
        memory=_bounds(requests, limits, "memory"),
        devices=_devices(added([each.resources.limits for each in containers])),
        containers=[_container(each, pod) for each in containers],
        main=named if named in names else next((c.name for c in pod.spec.containers), ""),
    )


def unknown_pod(namespace: str, name: str) -> PodFacts:
    """Return a pod with usage that cannot be read itself."""
    none = ResourceBounds()
    return PodFacts(namespace, name, "", "", True, False, 0, none, none, {}, (), "")


def _is_ready(pod: CorePod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def _statuses(pod: CorePod) -> Mapping[str, ContainerStatus]:
    of_all = (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
    return {each.name: each for each in of_all}


def _container(container: Container, pod: CorePod) -> ContainerFacts:
    status = _statuses(pod).get(container.name)
    word, is_well = _state(status, container in pod.spec.initContainers)
    requests, limits = container.resources.requests, container.resources.limits
    return ContainerFacts(
        name=container.name,
        status=f"{word} (sidecar)" if is_sidecar(container) else word,
        restarts=status.restartCount if status else 0,
        is_well=is_well,
        cpu=_bounds(requests, limits, "cpu"),
        memory=_bounds(requests, limits, "memory"),
        devices=device_text(_devices(limits)),
    )


def _state(status: ContainerStatus | None, is_init: bool) -> tuple[str, bool]:
    """Return a word for the state of a container, and whether all is well with it."""
    if status is None:
        return "Waiting", False
    state = status.state
    if state.terminated is not None:
        return state.terminated.reason or "Terminated", state.terminated.exitCode == 0
    if state.running is not None:
        return ("Running" if status.ready or is_init else "NotReady"), status.ready or is_init
    return (state.waiting.reason if state.waiting else "") or "Waiting", False


def node_facts(node: CoreNode) -> NodeFacts:
    """Return the facts of a node."""
    is_ready = any(
        each.type == "Ready" and each.status == "True" for each in node.status.conditions
    )
    word = "Ready" if is_ready else "NotReady"
    room = node.status.allocatable
    return NodeFacts(
        name=node.metadata.name,
        status=f"{word},cordoned" if node.spec.unschedulable else word,
        is_well=is_ready and not node.spec.unschedulable,
        cpu=_number(room, "cpu"),
        memory=_number(room, "memory"),
        devices=_devices(room),
    )


def _number(amounts: ResourceList, resource: str) -> float | None:
    found = amounts.get(resource)
    return None if found is None else found.nanos / NANOS


def _bounds(requests: ResourceList, limits: ResourceList, resource: str) -> ResourceBounds:
    return ResourceBounds(_number(requests, resource), _number(limits, resource))


def _devices(amounts: ResourceList) -> dict[str, int]:
    """Return the extended resources: their names have a domain."""
    return {name: amount.value() for name, amount in amounts.items() if "/" in name}


def device_text(devices: Mapping[str, int], used: Mapping[str, int] | None = None) -> str:
    """Return devices without their domains, such as `gpu 2`; of a node `gpu 2/8`, where the first
    number is those that pods ask for."""
    named = {name.rpartition("/")[2]: (count, name) for name, count in devices.items() if count}
    if used is None:
        return ", ".join(f"{short} {count}" for short, (count, _) in sorted(named.items()))
    return ", ".join(
        f"{short} {used.get(name, 0)}/{count}" for short, (count, name) in sorted(named.items())
    )


class NodeLoad(NamedTuple):
    """The pods of a node, added up."""

    pods: int
    cpu: float
    memory: float
    """Requests."""
    devices: Mapping[str, int]


NO_LOAD: Final = NodeLoad(0, 0.0, 0.0, {})


def node_loads(pods: Iterable[PodFacts]) -> dict[str, NodeLoad]:
    """Return the load of each node that has pods."""
    loads: dict[str, NodeLoad] = {}
    for pod in pods:
        if not pod.node or pod.is_finished:
            continue
        known = loads.get(pod.node, NO_LOAD)
        loads[pod.node] = NodeLoad(
            known.pods + 1,
            known.cpu + (pod.cpu.request or 0.0),
            known.memory + (pod.memory.request or 0.0),
            Counter(known.devices) + Counter(pod.devices) if pod.devices else known.devices,
        )
    return loads
