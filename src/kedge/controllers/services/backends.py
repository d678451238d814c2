"""Backends: which pods stand behind a service, at which addresses and ports."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.references import ObjectReference
from kedge.api.core_v1.service_types import Service, ServicePort
from kedge.controllers.pod_state import ENDED, is_leaving, is_ready

HEADLESS = "service.kubernetes.io/headless"
"""A label of what belongs to a service without an address."""


def has_backends(service: Service) -> bool:
    """Whether a service leads to pods of its choice; others name the endpoints themselves."""
    return service.spec.type != "ExternalName" and bool(service.spec.selector)


def selects(service: Service, labels: Mapping[str, str]) -> bool:
    """Whether a service leads to pods with these labels."""
    return bool(service.spec.selector) and all(
        labels.get(key) == value for key, value in service.spec.selector.items()
    )


def is_headless(service: Service) -> bool:
    return service.spec.clusterIP in ("", "None")


def is_placed(pod: Pod) -> bool:
    """Whether a pod can be reached at all."""
    status = pod.status
    return status.phase not in ENDED and bool(status.podIP or status.podIPs)


def addresses(pod: Pod, family: str) -> list[str]:
    """The pod's addresses of one family, IPv4 or IPv6."""
    given = [each.ip for each in pod.status.podIPs] or [pod.status.podIP]
    parsed = [ipaddress.ip_address(each) for each in given if each]
    return [str(each) for each in parsed if f"IPv{each.version}" == family]


def families(service: Service) -> list[str]:
    """The families in which a service has addresses."""
    if service.spec.ipFamilies:
        return list(service.spec.ipFamilies)
    if is_headless(service):
        return ["IPv4", "IPv6"]
    return [f"IPv{ipaddress.ip_address(service.spec.clusterIP).version}"]


PortNumbers = tuple[int | None, ...]
"""The target port in a pod for each port of a service; None if the pod has none."""


class PortNames:
    """Resolves the target ports of one service in its pods.

    A service and a pod may have 20,000 ports each, so this avoids nested loops, and pods with
    the same port names share one result.
    """

    def __init__(self, ports: Sequence[ServicePort]) -> None:
        self._ports = ports
        self._has_names = any(not isinstance(port.targetPort, int) for port in ports)
        self._known: dict[frozenset[tuple[tuple[str, str], int]], PortNumbers] = {}

    def numbers(self, pod: Pod) -> PortNumbers:
        named: dict[tuple[str, str], int] = {}
        if self._has_names:
            for name, protocol, number in _ports(pod):
                named.setdefault((name, protocol or "TCP"), number)
        key = frozenset(named.items())
        if key not in self._known:
            self._known[key] = tuple(self._number(port, named) for port in self._ports)
        return self._known[key]

    def _number(self, port: ServicePort, named: Mapping[tuple[str, str], int]) -> int | None:
        if isinstance(port.targetPort, int):
            return port.targetPort
        return named.get((port.targetPort or "", port.protocol or "TCP"))


def _ports(pod: Pod) -> Iterator[tuple[str, str, int]]:
    sidecars = [each for each in pod.spec.initContainers if each.restartPolicy == "Always"]
    for container in [*pod.spec.containers, *sidecars]:
        for port in container.ports:
            yield port.name, port.protocol, port.containerPort


def hostname_of(pod: Pod, service: Service) -> str:
    """The name that DNS knows a pod by below the service, if any."""
    return pod.spec.hostname if pod.spec.subdomain == service.metadata.name else ""


def reference(pod: Pod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)


def seen_of(pod: Pod) -> tuple[object, ...]:
    """All of a pod that matters to those who want to reach it."""
    return (
        pod.metadata.uid,
        pod.metadata.labels,
        is_leaving(pod),
        is_ready(pod),
        pod.status.phase in ENDED,
        pod.status.podIP,
        [each.ip for each in pod.status.podIPs],
        pod.spec.nodeName,
    )
