"""The rules of a node's table decide as the definition of NetworkPolicy does."""

import ipaddress
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.client.informer import Key
from kedge.node.network.nftables.batch import FORWARD, INPUT
from kedge.node.policies.hosted_ports import hosted_ports
from kedge.node.policies.policy_datapath import PolicyDatapath
from kedge.node.policies.policy_enforcer import enforced_policy
from kedge.node.policies.policy_objects import NamedPodPort, NetworkPolicy, PolicyPod
from kedge.testing.packet_rules import Packet, PacketRules

Json = dict[str, Any]
NETWORK = IPv4Network("10.244.0.0/24")
GATEWAY = IPv4Address("10.244.0.1")
NAMESPACES = {"x": {"ns": "x"}, "y": {"ns": "y", "team": "red"}, "kube-system": {}}


def policy(namespace: str, spec: Json, name: str = "p") -> NetworkPolicy:
    document = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return msgspec.convert(document, NetworkPolicy)


class Cluster:
    """Objects by name, and the datapath that follows them."""

    def __init__(self) -> None:
        self.datapath = PolicyDatapath(NETWORK, hosted_ports(("127.0.0.1", 6443), GATEWAY))
        self.pods: dict[str, PolicyPod] = {}
        self.policies: dict[Key, Json] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        for name, labels in NAMESPACES.items():
            self.namespace(name, labels)

    def namespace(self, name: str, labels: Mapping[str, str]) -> None:
        self.namespaces[name] = labels
        drain(self.datapath.put_namespace(name, labels))

    def pod(self, name: str, address: str, labels: Mapping[str, str], *ports: NamedPodPort) -> None:
        namespace, _, own = name.partition("/")
        made = PolicyPod(namespace, own, labels, IPv4Address(address), ports)
        self.pods[name] = made
        drain(self.datapath.put_pod(made))

    def remove_pod(self, name: str) -> None:
        found = self.pods.pop(name)
        drain(self.datapath.remove_pod(Key(found.namespace, found.name)))

    def put(self, key: Key, spec: Json) -> None:
        self.policies[key] = spec
        enforced = enforced_policy(policy(key.namespace, spec, key.name))
        drain(self.datapath.put_policy(key, enforced))

    def remove(self, key: Key) -> None:
        del self.policies[key]
        drain(self.datapath.remove_policy(key))

    def accepts(self, packet: Packet, hook: int = FORWARD) -> bool:
        return PacketRules(self.datapath.content.everything()).accepts(packet, hook)


def drain(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


# An evaluator that knows nothing of sets and chains: it reads the documents for each packet.


class BruteForce(NamedTuple):
    """Decides by the text of the API's documentation."""

    cluster: Cluster

    def accepts(self, packet: Packet) -> bool:
        if packet.is_answer or packet.source == packet.destination:
            return True
        return all(
            self._direction(packet, direction)
            for direction, end in (("Egress", packet.source), ("Ingress", packet.destination))
            if IPv4Address(end) in NETWORK
        )

    def _direction(self, packet: Packet, direction: str) -> bool:
        own = packet.source if direction == "Egress" else packet.destination
        pod = self._pod(own)
        if pod is None:
            return True
        selecting = [
            spec
            for key, spec in self.cluster.policies.items()
            if key.namespace == pod.namespace
            and direction in _types(spec)
            and _matches(spec["podSelector"], pod.labels)
        ]
        if not selecting:
            return True
        rules = [rule for spec in selecting for rule in spec.get(direction.lower()) or ()]
        return any(self._rule(packet, direction, rule, pod.namespace) for rule in rules)

    def _rule(self, packet: Packet, direction: str, rule: Json, namespace: str) -> bool:
        peers = rule.get("from" if direction == "Ingress" else "to")
        other = packet.source if direction == "Ingress" else packet.destination
        is_peer = not peers or any(self._peer(other, each, namespace) for each in peers)
        ports = rule.get("ports")
        return is_peer and (not ports or any(self._port(packet, each) for each in ports))

    def _peer(self, address: IPv4Address, peer: Json, namespace: str) -> bool:
        if block := peer.get("ipBlock"):
            inside = address in ipaddress.ip_network(block["cidr"])
            out = [ipaddress.ip_network(each) for each in block.get("except", ())]
            return inside and not any(address in each for each in out)
        pod = self._pod(address)
        if pod is None:
            return False
        if "namespaceSelector" in peer:
            labels = self.cluster.namespaces.get(pod.namespace, {})
            if not _matches(peer["namespaceSelector"], labels):
                return False
        elif pod.namespace != namespace:
            return False
        return _matches(peer.get("podSelector", {}), pod.labels)

    def _port(self, packet: Packet, port: Json) -> bool:
        if packet.protocol != port.get("protocol", "TCP"):
            return False
        wanted = port.get("port")
        if wanted is None:
            return True
        if isinstance(wanted, int):
            return bool(wanted <= packet.port <= port.get("endPort", wanted))
        pod = self._pod(packet.destination)
        return pod is not None and any(
            each == (wanted, packet.protocol, packet.port) for each in pod.ports
        )

    def _pod(self, address: IPv4Address) -> PolicyPod | None:
        return next((each for each in self.cluster.pods.values() if each.address == address), None)


def _types(spec: Json) -> list[str]:
    given = spec.get("policyTypes")
    return given or (["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])


def _matches(selector: Json, labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    for each in selector.get("matchExpressions") or ():
        value, values = labels.get(each["key"]), each.get("values", ())
        holds = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[each["operator"]]
        if not holds:
            return False
    return True


# Random clusters.

PODS = {
    "x/a": "10.244.0.2",
    "x/b": "10.244.0.3",
    "y/a": "10.244.0.4",
    "y/b": "10.244.1.2",
    "y/c": "10.244.1.3",
}
OUTSIDE = ("192.0.2.9", "10.244.0.9")
keys, values = st.just("app"), st.sampled_from(["1", "2"])
labels_ = st.dictionaries(keys, values)
numbers = st.sampled_from([1, 80, 81, 65535])
names = st.sampled_from(["www", "alt"])
protocols = st.sampled_from(["TCP", "UDP", "SCTP"])
expressions_ = st.one_of(
    st.fixed_dictionaries(
        {
            "key": keys,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(values, min_size=1),
        }
    ),
    st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
selectors = st.one_of(
    st.just({}),
    st.builds(lambda value: {"matchLabels": {"app": value}}, values),
    st.builds(lambda each: {"matchExpressions": [each]}, expressions_),
)
namespace_selectors = st.sampled_from(
    [
        {},
        {"matchLabels": {"ns": "x"}},
        {"matchLabels": {"team": "red"}},
        {"matchExpressions": [{"key": "ns", "operator": "NotIn", "values": ["x"]}]},
    ]
)
cidrs = st.sampled_from(
    [
        "0.0.0.0/0",
        "10.244.0.0/16",
        "10.244.0.0/24",
        "10.244.0.2/31",
        "10.244.1.2/32",
        "192.0.2.0/24",
    ]
)
blocks = st.fixed_dictionaries({"cidr": cidrs}, optional={"except": st.lists(cidrs, max_size=3)})
peers = st.one_of(
    st.fixed_dictionaries({"podSelector": selectors}),
    st.fixed_dictionaries({"namespaceSelector": namespace_selectors}),
    st.fixed_dictionaries({"namespaceSelector": namespace_selectors, "podSelector": selectors}),
    st.fixed_dictionaries({"ipBlock": blocks}),
)
ports = st.one_of(
    st.fixed_dictionaries({}, optional={"protocol": protocols, "port": st.one_of(numbers, names)}),
    st.builds(
        lambda first, last, protocol: {
            "port": min(first, last),
            "endPort": max(first, last),
            "protocol": protocol,
        },
        numbers,
        numbers,
        protocols,
    ),
)


def _rules(direction: str) -> st.SearchStrategy[list[Json]]:
    some_peers = st.one_of(st.none(), st.lists(peers, min_size=1, max_size=2))
    some_ports = st.one_of(st.none(), st.lists(ports, min_size=1, max_size=2))
    rule = st.fixed_dictionaries({direction: some_peers, "ports": some_ports})
    return st.lists(rule, max_size=2)


specs = st.fixed_dictionaries(
    {"podSelector": selectors, "ingress": _rules("from"), "egress": _rules("to")},
    optional={
        "policyTypes": st.sampled_from([["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
    },
)
policy_keys = st.builds(Key, st.sampled_from(["x", "y"]), st.sampled_from(["p", "q"]))
pod_ports = st.lists(
    st.builds(NamedPodPort, names, st.sampled_from(["TCP", "UDP"]), numbers), max_size=2
)
steps = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(sorted(PODS)), labels_, pod_ports),
    st.tuples(st.just("no pod"), st.sampled_from(sorted(PODS))),
    st.tuples(st.just("policy"), policy_keys, specs),
    st.tuples(st.just("policy"), policy_keys, specs),
    st.tuples(st.just("no policy"), policy_keys),
    st.tuples(
        st.just("namespace"), st.sampled_from(["x", "y"]), st.sampled_from([{}, {"ns": "x"}])
    ),
)
populations = st.fixed_dictionaries({name: st.tuples(labels_, pod_ports) for name in PODS})
policies = st.dictionaries(policy_keys, specs, min_size=1)
services_ = st.lists(
    st.tuples(st.sampled_from(["TCP", "UDP", "SCTP", "ICMP"]), numbers), min_size=2, max_size=3
)
ENDS = [IPv4Address(each) for each in (*PODS.values(), *OUTSIDE)]


def take(cluster: Cluster, step: tuple[Any, ...]) -> None:
    match step:
        case "pod", name, labels, named:
            cluster.pod(name, PODS[name], labels, *named)
        case "no pod", name:
            if name in cluster.pods:
                cluster.remove_pod(name)
        case "policy", key, spec:
            cluster.put(key, spec)
        case "no policy", key:
            if key in cluster.policies:
                cluster.remove(key)
        case "namespace", name, labels:
            cluster.namespace(name, labels)


@settings(max_examples=80, deadline=None)
@given(populations, policies, st.lists(steps, max_size=6), services_)
def test_any_history_leads_to_the_verdicts_of_the_definition(
    population: dict[str, tuple[Any, Any]],
    written: dict[Key, Json],
    history: list[tuple[Any, ...]],
    probed: list[tuple[str, int]],
) -> None:
    cluster = Cluster()
    for name, (labels, named) in population.items():
        cluster.pod(name, PODS[name], labels, *named)
    for key, spec in written.items():
        cluster.put(key, spec)
    for each in history:
        take(cluster, each)
    rules, judge = PacketRules(cluster.datapath.content.everything()), BruteForce(cluster)
    for source in ENDS:
        for destination in ENDS:
            for protocol, port in probed:
                packet = Packet(source, destination, protocol, port)
                assert rules.accepts(packet, FORWARD) == judge.accepts(packet), packet


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=1, max_size=14))
def test_changes_lead_to_the_same_table_as_a_start_from_nothing(
    history: list[tuple[Any, ...]],
) -> None:
    changed, fresh = Cluster(), Cluster()
    for each in history:
        take(changed, each)
        changed.datapath.content.change("t")
        changed.datapath.content.confirm()
    for name, labels in changed.namespaces.items():
        fresh.namespace(name, labels)
    for key, spec in changed.policies.items():
        fresh.put(key, spec)
    for name, pod in changed.pods.items():
        fresh.pod(name, str(pod.address), pod.labels, *pod.ports)
    assert changed.datapath.content.everything() == fresh.datapath.content.everything()
    assert len(changed.datapath.content.change("t")) == 0


CASES = yaml.safe_load((Path(__file__).parent / "policies.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=[each["name"] for each in CASES])
def test_verdicts(case: Json) -> None:
    cluster = Cluster()
    for name, address in PODS.items():
        named = NamedPodPort("www", "TCP", 80), NamedPodPort("alt", "TCP", 81)
        cluster.pod(name, address, {"pod": name[-1]}, *named)
    for number, each in enumerate(case["policies"]):
        namespace = each.get("namespace", "x")
        cluster.put(Key(namespace, str(number)), {"podSelector": {}, **each["spec"]})
    for expected in (True, False):
        for text in case.get("passes" if expected else "dropped", ()):
            client, server, *rest = text.split()
            protocol, _, port = (rest[0] if rest else "TCP:80").partition(":")
            source, to = (IPv4Address(PODS.get(each, each)) for each in (client, server))
            packet = Packet(source, to, protocol, int(port or 0), "answer" in rest)
            hook = FORWARD if to in IPv4Network("10.244.0.0/16") and to != GATEWAY else INPUT
            assert cluster.accepts(packet, hook) == expected, text


def test_one_changed_label_changes_two_elements_however_many_pods_there_are() -> None:
    cluster = Cluster()
    for number in range(200):
        cluster.pod(f"y/{number}", str(IPv4Address("10.244.7.0") + number), {"app": "1"})
    allowed = {"from": [{"podSelector": {"matchLabels": {"app": "2"}}, "namespaceSelector": {}}]}
    cluster.put(Key("x", "p"), {"podSelector": {}, "ingress": [allowed]})
    content = cluster.datapath.content
    content.confirm()
    cluster.pod("y/7", "10.244.7.7", {"app": "2"})
    assert len(content.change("t")) == 1
    content.confirm()
    cluster.pod("y/7", "10.244.7.7", {"app": "1"})
    assert len(content.change("t")) == 1


def test_an_address_belongs_to_the_pod_that_got_it_last() -> None:
    cluster = Cluster()
    cluster.put(Key("x", "p"), {"podSelector": {"matchLabels": {"app": "1"}}})
    cluster.pod("x/old", "10.244.0.2", {})
    cluster.pod("x/new", "10.244.0.2", {"app": "1"})
    packet = Packet(IPv4Address("10.244.0.3"), IPv4Address("10.244.0.2"), "TCP", 80)
    assert not cluster.accepts(packet)
    cluster.remove_pod("x/old")
    assert not cluster.accepts(packet)
