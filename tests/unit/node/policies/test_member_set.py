"""What a pod and a hosted port add to sets."""

from ipaddress import IPv4Address

from kedge.machinery.selectors import EVERYTHING, labels_from_map
from kedge.node.network import ruleset
from kedge.node.policies.compiled_policy import PeerGroup, PeerSelector, PortGroup, PortName
from kedge.node.policies.member_set import (
    HostedPort,
    NamedPorts,
    PeerAddresses,
    PeerPorts,
    elements_of,
    hosted_elements,
)
from kedge.node.policies.policy_objects import NamedPodPort, PolicyPod
from kedge.node.policies.ranges import Range

ADDRESS = IPv4Address("10.0.0.1")
POD = PolicyPod("x", "a", {"app": "1"}, ADDRESS, (NamedPodPort("www", "TCP", 80),))
WWW = PortGroup((), (PortName("TCP", "www"),))
OWN = PeerGroup((PeerSelector("x", None, labels_from_map({"app": "1"})),), ())


def test_a_pod_adds_its_address_where_a_selector_matches() -> None:
    assert list(elements_of(PeerAddresses(OWN), POD, {})) == [ADDRESS.packed]
    elsewhere = POD._replace(namespace="y")
    assert list(elements_of(PeerAddresses(OWN), elsewhere, {})) == []
    assert list(elements_of(PeerAddresses(OWN), POD._replace(address=None), {})) == []


def test_a_pod_adds_its_named_ports() -> None:
    port = [ruleset.key(ADDRESS, "TCP", 80)]
    assert list(elements_of(NamedPorts("x", WWW), POD, {})) == port
    assert list(elements_of(NamedPorts("y", WWW), POD, {})) == []
    block = PeerGroup((), (Range(int(ADDRESS), int(ADDRESS)),))
    assert list(elements_of(PeerPorts(block, WWW), POD, {})) == port
    assert list(elements_of(PeerPorts(PeerGroup((), ()), WWW), POD, {})) == []


def test_a_hosted_port_is_added_at_its_real_address() -> None:
    service, real = IPv4Address("10.96.0.10"), IPv4Address("10.244.0.1")
    hosted = HostedPort("sys", {"app": "dns"}, "dns", "UDP", service, 53, real, 5353)
    added = [ruleset.key(real, "UDP", 5353)]
    everywhere = PeerGroup((PeerSelector("", EVERYTHING, labels_from_map({"app": "dns"})),), ())
    assert list(hosted_elements(PeerPorts(everywhere, None), hosted, {})) == added
    assert list(hosted_elements(PeerPorts(everywhere, WWW), hosted, {})) == []
    assert list(hosted_elements(PeerPorts(OWN, None), hosted, {})) == []
    assert list(hosted_elements(PeerAddresses(everywhere), hosted, {})) == []
