"""The policies, pods and namespaces of a cluster, as content of a node's table.

A change of one pod changes the elements that the pod has in sets and maps, and nothing else. Every
method returns an iterator with one step for each pod or set that it looks at, because users choose
how many there are. The content is consistent after the last step.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Final, NamedTuple

from kedge.client.informer import Key
from kedge.node.network.nftables import batch, expressions
from kedge.node.network.nftables.batch import SetSpec
from kedge.node.network.ruleset import RangeElements, WayOutAddress
from kedge.node.policies.compiled_policy import CompiledPolicy
from kedge.node.policies.member_set import HostedPort, MemberSet, elements_of, hosted_elements
from kedge.node.policies.policy_chains import (
    ISOLATION,
    OWN,
    PolicyChain,
    base_chains,
    base_sets,
    encoded_chains,
    member_spec,
    pod_chain,
)
from kedge.node.policies.policy_objects import PolicyPod
from kedge.node.policies.set_index import SetIndex, pod_anchors, set_anchors
from kedge.node.policies.table_content import TableContent

Labels = Mapping[str, str]
_NO_LABELS: Final[Labels] = {}
_SIZES: Final = {batch.IPV4: 4, batch.PORT: 2}


class EnforcedPolicy(NamedTuple):
    """A policy and its chains, by direction."""

    policy: CompiledPolicy
    chains: Mapping[str, PolicyChain]


class _Isolation(NamedTuple):
    """The chain that decides about packets of a pod in one direction."""

    address: bytes
    chain: str


class PolicyDatapath:
    """The desired content of a node's table."""

    def __init__(
        self,
        network: IPv4Network,
        hosted: Sequence[HostedPort],
        way_out: WayOutAddress | None = None,
    ) -> None:
        self._way_out = way_out
        self.content: Final = TableContent(base_sets(), base_chains())
        self._network = network
        self._hosted = hosted
        self._policies: dict[Key, EnforcedPolicy] = {}
        self._policies_of: dict[str, dict[Key, EnforcedPolicy]] = {}
        self._namespaces: dict[str, Labels] = {}
        self._pods: dict[Key, PolicyPod] = {}
        self._pods_of: dict[str, dict[Key, None]] = {}
        self._members: dict[str, MemberSet] = {}
        self._index = SetIndex()
        self._holders: Counter[str] = Counter()
        self._counts: dict[str, Counter[bytes]] = {}
        """For each set and element, how many pods and hosted ports add it."""
        self._added: dict[Key, dict[str, frozenset[bytes]]] = {}
        """For each pod and hosted port, the elements that it adds to each set. A hosted port has a
        key without a namespace."""
        self._adders: dict[str, dict[Key, None]] = {}
        """For each set, who adds elements to it."""
        self._isolated: dict[Key, dict[str, _Isolation]] = {}
        self._owners: dict[tuple[str, bytes], Key] = {}
        for host in network.hosts():
            self.content.put(OWN, host.packed * 2)

    @property
    def is_empty(self) -> bool:
        """Whether there is no policy at all."""
        return not self._policies

    def has_policies(self, namespace: str) -> bool:
        return namespace in self._policies_of

    def put_policy(self, key: Key, enforced: EnforcedPolicy) -> Iterator[None]:
        """Add or replace a policy."""
        before = self._policies.get(key)
        if before == enforced:
            return
        for chain in enforced.chains.values():
            yield from self._hold(chain)
        self._policies[key] = enforced
        self._policies_of.setdefault(key.namespace, {})[key] = enforced
        yield from self._isolate_all(key.namespace)
        if before is not None:
            yield from self._release_all(before)

    def remove_policy(self, key: Key) -> Iterator[None]:
        before = self._policies.pop(key, None)
        if before is None:
            return
        others = self._policies_of[key.namespace]
        del others[key]
        if not others:
            del self._policies_of[key.namespace]
        yield from self._isolate_all(key.namespace)
        yield from self._release_all(before)

    def put_pod(self, pod: PolicyPod) -> Iterator[None]:
        """Add or replace a pod."""
        key = Key(pod.namespace, pod.name)
        if self._pods.get(key) == pod:
            return
        self._pods[key] = pod
        self._pods_of.setdefault(pod.namespace, {})[key] = None
        yield from self._update_pod(key, pod)
        self._isolate(key, pod)

    def remove_pod(self, key: Key) -> Iterator[None]:
        if self._pods.pop(key, None) is None:
            return
        self._index.remove_pod(key)
        others = self._pods_of[key.namespace]
        del others[key]
        if not others:
            del self._pods_of[key.namespace]
        for name in list(self._added.get(key, ())):
            self._replace_elements(key, name, frozenset())
            yield
        self._isolate(key, None)

    def put_namespace(self, name: str, labels: Labels) -> Iterator[None]:
        """Add a namespace, or change its labels."""
        if self._namespaces.get(name) == labels:
            return
        self._namespaces[name] = labels
        yield from self._update_namespace(name)

    def remove_namespace(self, name: str) -> Iterator[None]:
        if self._namespaces.pop(name, None) is not None:
            yield from self._update_namespace(name)

    def _update_namespace(self, name: str) -> Iterator[None]:
        for key in list(self._pods_of.get(name, ())):
            yield from self._update_pod(key, self._pods[key])
        for hosted in self._hosted:
            if hosted.namespace == name:
                for each in self._members:
                    self._update_hosted(hosted, each)
                    yield

    def _update_pod(self, key: Key, pod: PolicyPod) -> Iterator[None]:
        labels = self._namespaces.get(pod.namespace, _NO_LABELS)
        self._index.put_pod(key, pod_anchors(pod, labels))
        # Also the sets that the pod was in: it may have lost the label that led there.
        for name in self._index.sets_of(key) | self._added.get(key, {}).keys():
            found = elements_of(self._members[name], pod, labels)
            self._replace_elements(key, name, frozenset(found))
            yield

    def _update_hosted(self, hosted: HostedPort, name: str) -> None:
        labels = self._namespaces.get(hosted.namespace, _NO_LABELS)
        found = hosted_elements(self._members[name], hosted, labels)
        adder = Key("", f"{hosted.protocol}/{hosted.address}:{hosted.port}")
        self._replace_elements(adder, name, frozenset(found))

    def _replace_elements(self, adder: Key, name: str, elements: frozenset[bytes]) -> None:
        sets = self._added.get(adder, {})
        before = sets.get(name, frozenset())
        if before == elements:
            return
        counts = self._counts.setdefault(name, Counter())
        for each in elements - before:
            counts[each] += 1
            self.content.put(name, each)
        for each in before - elements:
            counts[each] -= 1
            if not counts[each]:
                del counts[each]
                self.content.drop(name, each)
        if elements:
            self._added.setdefault(adder, {})[name] = elements
            self._adders.setdefault(name, {})[adder] = None
        else:
            del self._adders[name][adder], sets[name]
            if not sets:
                del self._added[adder]

    def _hold(self, chain: PolicyChain) -> Iterator[None]:
        for name, (type_, ranges) in chain.ranges.items():
            spec = SetSpec((type_,), has_ranges=True)
            self.content.hold_set(name, spec, RangeElements(_SIZES[type_], ranges))
        for name, members in chain.members.items():
            self.content.hold_set(name, member_spec(members))
            self._holders[name] += 1
            if self._holders[name] == 1:
                yield from self._fill(name, members)
        for name, rules in encoded_chains(chain, self._way_out):
            self.content.hold_chain(name, rules)

    def _fill(self, name: str, members: MemberSet) -> Iterator[None]:
        """Add the elements of all pods to a new set."""
        self._members[name] = members
        anchors = set_anchors(members)
        self._index.put_set(name, anchors)
        for key in self._index.pods_of(anchors):
            pod = self._pods[key]
            labels = self._namespaces.get(pod.namespace, _NO_LABELS)
            self._replace_elements(key, name, frozenset(elements_of(members, pod, labels)))
            yield
        for hosted in self._hosted:
            self._update_hosted(hosted, name)

    def _release_all(self, enforced: EnforcedPolicy) -> Iterator[None]:
        for chain in enforced.chains.values():
            for name, _ in encoded_chains(chain, self._way_out):
                self.content.release_chain(name)
            for name in chain.ranges:
                self.content.release_set(name)
            for name in chain.members:
                self._holders[name] -= 1
                if not self._holders[name]:
                    del self._holders[name]
                    yield from self._empty(name)
                self.content.release_set(name)

    def _empty(self, name: str) -> Iterator[None]:
        for adder in list(self._adders.get(name, ())):
            self._replace_elements(adder, name, frozenset())
            yield
        self._index.remove_set(name, set_anchors(self._members.pop(name)))
        self._adders.pop(name, None)
        self._counts.pop(name, None)

    def _isolate_all(self, namespace: str) -> Iterator[None]:
        for key in list(self._pods_of.get(namespace, ())):
            self._isolate(key, self._pods[key])
            yield

    def _isolate(self, key: Key, pod: PolicyPod | None) -> None:
        """Lead the packets of a pod of this node to the chains of its policies."""
        before = self._isolated.pop(key, {})
        after: dict[str, _Isolation] = {}
        if pod is not None and pod.address is not None and pod.address in self._network:
            for direction, chains in self._selecting(pod).items():
                name, chain = pod_chain(chains)
                self.content.hold_chain(name, chain)
                after[direction] = _Isolation(pod.address.packed, name)
        for direction in ISOLATION:
            self._lead(key, direction, before.get(direction), after.get(direction))
        if after:
            self._isolated[key] = after

    def _selecting(self, pod: PolicyPod) -> dict[str, list[str]]:
        """Return the chains of the policies that select a pod, by direction."""
        found: dict[str, list[str]] = {}
        for policy, chains in self._policies_of.get(pod.namespace, {}).values():
            if policy.pods.matches(pod.labels):
                for direction, chain in chains.items():
                    found.setdefault(direction, []).append(chain.name)
        return found

    def _lead(
        self, key: Key, direction: str, before: _Isolation | None, after: _Isolation | None
    ) -> None:
        where = ISOLATION[direction]
        if before is not None:
            # Another pod may have got the address meanwhile.
            place = (direction, before.address)
            is_stale = after is None or after.address != before.address
            if is_stale and self._owners.get(place) == key:
                del self._owners[place]
                self.content.drop(where, before.address)
        if after is not None:
            self._owners[direction, after.address] = key
            self.content.put(where, after.address, expressions.goto_verdict(after.chain))
        if before is not None:
            self.content.release_chain(before.chain)
