"""Admission of pods by the node: checks whether a pod that is bound to it can run here."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.node_selection import required_nodes
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import pod_requests
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.tolerations import untolerated
from kedge.api.core_v1.resource_names import is_extended
from kedge.api.resource_v1.extended_resources import claimed_resources
from kedge.machinery.quantity import Quantity
from kedge.node.pod.runtime_specs import sysctl_name

OS = "linux"
OS_LABEL = "kubernetes.io/os"

_IPC_SYSCTLS = {"kernel.shm_rmid_forced"}
_NETWORK_SYSCTLS = {
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
"""Safe sysctls, by the namespace that isolates them: they affect no other pod."""


class PodRejection(msgspec.Struct, frozen=True):
    """Why the node does not admit a pod."""

    reason: str
    message: str


def admit(
    pod: Pod, others: Iterable[Pod], node: Node, is_device: Callable[[str], bool]
) -> PodRejection | None:
    """Return why the node does not admit a pod beside the other active pods; None if it does.
    Resources for which `is_device` is true are checked by the device allocator instead."""
    return next(_rejections(pod, list(others), node, is_device), None)


def _rejections(
    pod: Pod, others: list[Pod], node: Node, is_device: Callable[[str], bool]
) -> Iterator[PodRejection]:
    yield from _system(pod, node)
    yield from _sysctls(pod)
    yield from shortages(pod, others, node, is_device)
    yield from _place(pod, others, node)


def _system(pod: Pod, node: Node) -> Iterator[PodRejection]:
    if pod.metadata.labels.get(OS_LABEL, OS) != OS:
        text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        yield PodRejection("PodOSSelectorNodeLabelDoesNotMatch", text)
    if pod.spec.os is not None and pod.spec.os.name != OS:
        text = "Failed to admit pod as the OS field doesn't match node OS"
        yield PodRejection("PodOSNotSupported", text)


def _sysctls(pod: Pod) -> Iterator[PodRejection]:
    """Return the sysctls that this node does not permit to pods."""
    context = pod.spec.securityContext
    for sysctl in context.sysctls if context is not None else ():
        name = sysctl_name(sysctl.name)
        if name in _IPC_SYSCTLS:
            why = "not allowed with host IPC enabled" if pod.spec.hostIPC else ""
        elif name in _NETWORK_SYSCTLS:
            why = "not allowed with host Net enabled" if pod.spec.hostNetwork else ""
        else:
            why = "not allowlisted"
        if why:
            yield PodRejection("SysctlForbidden", f'forbidden sysctl: "{name}" {why}')


def has_room(pod: Pod, others: list[Pod], node: Node, is_device: Callable[[str], bool]) -> bool:
    """Return whether resources and host ports of the node suffice for a pod beside the others."""
    short = next(shortages(pod, others, node, is_device), None)
    return short is None and not _ports_clash(pod, others)


def shortages(
    pod: Pod, others: list[Pod], node: Node, is_device: Callable[[str], bool]
) -> Iterator[PodRejection]:
    """Yield a rejection for each resource that the node is short of."""
    allocatable = node.status.allocatable
    most = allocatable.get("pods")
    if most is not None and len(others) + 1 > most.value():
        yield _shortage("pods", 1, len(others), most.value())
    requested = pod_requests(without_claimed(pod))
    used = _sum(pod_requests(without_claimed(other)) for other in others) if requested else {}
    for name in _ordered(requested):
        amount = _units(name, requested[name])
        if amount == 0 or is_device(name):
            continue
        if name not in allocatable:
            # As in the kubelet: extended resources that the node does not have may be managed
            # outside of it.
            if is_extended(name):
                continue
            yield _shortage(name, amount, 0, 0)
            continue
        taken = _units(name, used[name]) if name in used else 0
        capacity = _units(name, allocatable[name])
        if amount > capacity - taken:
            yield _shortage(name, amount, taken, capacity)


def without_claimed(pod: Pod) -> PodSpec:
    """Return the spec of a pod without the extended resources that its claim provides."""
    claimed = set(claimed_resources(pod))
    if not claimed:
        return pod.spec

    def rest(container: Container) -> Container:
        requests = {
            name: amount
            for name, amount in container.resources.requests.items()
            if (container.name, name) not in claimed
        }
        return replace(container, resources=replace(container.resources, requests=requests))

    return replace(
        pod.spec,
        containers=[rest(each) for each in pod.spec.containers],
        initContainers=[rest(each) for each in pod.spec.initContainers],
    )


def _ordered(requested: Mapping[str, Quantity]) -> list[str]:
    first = [name for name in ("cpu", "memory", "ephemeral-storage") if name in requested]
    return first + sorted(requested.keys() - set(first))


def _units(name: str, amount: Quantity) -> int:
    return amount.milli() if name == "cpu" else amount.value()


def _shortage(name: str, amount: int, used: int, capacity: int) -> PodRejection:
    text = (
        f"Node didn't have enough resource: {name}, "
        f"requested: {amount}, used: {used}, capacity: {capacity}"
    )
    return PodRejection(f"OutOf{name}", text)


def _sum(parts: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _place(pod: Pod, others: list[Pod], node: Node) -> Iterator[PodRejection]:
    matches = required_nodes(pod.spec)
    if matches is not None and not matches(node.metadata.name, node.metadata.labels):
        yield _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if pod.spec.nodeName != node.metadata.name:
        yield _failed("NodeName", "node(s) didn't match the requested node name")
    if _ports_clash(pod, others):
        text = "node(s) didn't have free ports for the requested pod ports"
        yield _failed("NodePorts", text)
    taints = [taint for taint in node.spec.taints if taint.effect == "NoExecute"]
    if untolerated(pod.spec.tolerations, taints) is not None:
        yield _failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def _failed(predicate: str, text: str) -> PodRejection:
    return PodRejection(predicate, f"Predicate {predicate} failed: {text}")


HostPort = tuple[str, str, int]


def _host_ports(pod: Pod) -> Iterator[HostPort]:
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        for port in container.ports:
            if port.hostPort:
                yield port.hostIP or "0.0.0.0", port.protocol or "TCP", port.hostPort


def _ports_clash(pod: Pod, others: Iterable[Pod]) -> bool:
    ports = set(_host_ports(pod))
    return any(_clash(one, other) for p in others for one in _host_ports(p) for other in ports)


def _clash(one: HostPort, other: HostPort) -> bool:
    if one[1:] != other[1:]:
        return False
    return one[0] == other[0] or "0.0.0.0" in (one[0], other[0])
