"""The parts of API objects that decide about packets."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from typing import NamedTuple

import msgspec

from kedge.api.core_v1.pod.pod_addresses import PodAddresses
from kedge.api.model import LabelSelector


class PolicyMeta(msgspec.Struct, frozen=True):
    """Which policy it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class AddressBlock(msgspec.Struct, frozen=True):
    """Addresses of a network, without some of its parts."""

    cidr: str = ""
    excepted: Sequence[str] | None = msgspec.field(default=None, name="except")


class PolicyPeer(msgspec.Struct, frozen=True, rename="camel"):
    """The other end of a connection."""

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: AddressBlock | None = None


class PolicyPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of the destination."""

    protocol: str = "TCP"
    port: int | str | None = None
    end_port: int | None = None


class PolicyIngressRule(msgspec.Struct, frozen=True):
    """Connections that may come in."""

    ports: Sequence[PolicyPort] | None = None
    peers: Sequence[PolicyPeer] | None = msgspec.field(default=None, name="from")


class PolicyEgressRule(msgspec.Struct, frozen=True):
    """Connections that may go out."""

    ports: Sequence[PolicyPort] | None = None
    peers: Sequence[PolicyPeer] | None = msgspec.field(default=None, name="to")


class PolicySpec(msgspec.Struct, frozen=True, rename="camel"):
    """The pods of a policy, and what is allowed to them."""

    pod_selector: LabelSelector = LabelSelector()
    policy_types: Sequence[str] | None = None
    ingress: Sequence[PolicyIngressRule] | None = None
    egress: Sequence[PolicyEgressRule] | None = None


class NetworkPolicy(msgspec.Struct, frozen=True):
    """A NetworkPolicy."""

    metadata: PolicyMeta = PolicyMeta()
    spec: PolicySpec = PolicySpec()


class PolicyNamespace(msgspec.Struct, frozen=True):
    """Name and labels of a namespace."""

    name: str = ""
    labels: Mapping[str, str] | None = None
    namespace: str = ""
    """Always empty: a namespace is in none."""


class LabelledNamespace(msgspec.Struct, frozen=True):
    """A namespace with its labels."""

    metadata: PolicyNamespace = PolicyNamespace()


class NamedPodPort(NamedTuple):
    """A port of a pod that policies can refer to by name."""

    name: str
    protocol: str
    number: int


class PolicyPod(NamedTuple):
    """A pod with an address of its own."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    address: IPv4Address | None
    """None before the pod has one."""
    ports: tuple[NamedPodPort, ...] = ()


def policy_pod(pod: PodAddresses) -> PolicyPod | None:
    """Return a pod as policies see it; None for one that uses the machine's network, or that has
    ended and gave its address back."""
    if pod.spec.hostNetwork or pod.status.phase in ("Succeeded", "Failed"):
        return None
    try:
        address = IPv4Address(pod.status.podIP) if pod.status.podIP else None
    except ValueError:
        address = None
    meta = pod.metadata
    return PolicyPod(meta.namespace, meta.name, meta.labels or {}, address, tuple(_ports(pod)))


def _ports(pod: PodAddresses) -> Iterator[NamedPodPort]:
    sidecars = [each for each in pod.spec.initContainers if each.restartPolicy == "Always"]
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports:
            if port.name:
                yield NamedPodPort(port.name, port.protocol, port.containerPort)
