"""Which sets a pod may belong to, and which pods a set may have, without a look at all of them.

Every pod and every selector have anchors: facts such as a namespace or a label. A selector can
match only pods that have one of its anchors. With a thousand policies and ten thousand pods, a
changed label is compared with the few selectors that mention it.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeVar

from kedge.client.informer import Key
from kedge.machinery.selectors import LabelRequirements
from kedge.node.policies.compiled_policy import PeerSelector, PortGroup
from kedge.node.policies.member_set import (
    Labels,
    MemberSet,
    NamedPorts,
    PeerAddresses,
    PeerPorts,
)
from kedge.node.policies.policy_objects import PolicyPod

K = TypeVar("K", bound=Hashable)
Anchor = tuple[str, ...]
ANY: Final[Anchor] = ("any",)
"""The anchor of selectors that need no label, and of all pods."""
_MOST_VALUES: Final = 8
"""A selector for more values of one label than this is not anchored to the label."""


def set_anchors(members: MemberSet) -> frozenset[Anchor]:
    """Return anchors such that each pod with elements in the set has at least one of them."""
    match members:
        case PeerAddresses(peers):
            return frozenset(one for each in peers.selectors for one in _selector_anchors(each))
        case NamedPorts(namespace, ports):
            return frozenset(_port_anchors(namespace, ports))
        case PeerPorts(_, ports):
            return frozenset(_port_anchors("", ports)) if ports is not None else frozenset()


def pod_anchors(pod: PolicyPod, namespace: Labels) -> frozenset[Anchor]:
    """Return all anchors of a pod in a namespace with these labels."""
    return frozenset(_pod_anchors(pod, namespace))


def _pod_anchors(pod: PolicyPod, namespace: Labels) -> Iterator[Anchor]:
    yield ANY
    yield "namespace", pod.namespace
    for key, value in pod.labels.items():
        yield "label", "", key, value
        yield "label", pod.namespace, key, value
    for key, value in namespace.items():
        yield "namespace label", key, value
    for port in pod.ports:
        yield "port", "", port.protocol, port.name
        yield "port", pod.namespace, port.protocol, port.name


def _selector_anchors(selector: PeerSelector) -> Iterator[Anchor]:
    if label := _needed_label(selector.pods):
        key, values = label
        yield from (("label", selector.namespace, key, value) for value in values)
    elif selector.namespaces is None:
        yield "namespace", selector.namespace
    elif label := _needed_label(selector.namespaces):
        key, values = label
        yield from (("namespace label", key, value) for value in values)
    else:
        yield ANY


def _needed_label(requirements: LabelRequirements) -> tuple[str, tuple[str, ...]] | None:
    """Return a label that every match has, with its possible values."""
    for key, operator, values in requirements.requirements:
        if operator in ("=", "in") and len(values) <= _MOST_VALUES:
            return key, values
    return None


def _port_anchors(namespace: str, ports: PortGroup) -> Iterator[Anchor]:
    return (("port", namespace, each.protocol, each.name) for each in ports.names)


class SetIndex:
    """Names of sets and keys of pods by anchor."""

    def __init__(self) -> None:
        self._sets: dict[Anchor, dict[str, None]] = {}
        self._pods: dict[Anchor, dict[Key, None]] = {}
        self._anchors: dict[Key, frozenset[Anchor]] = {}

    def put_pod(self, key: Key, anchors: frozenset[Anchor]) -> None:
        before = self._anchors.get(key, frozenset())
        for each in before - anchors:
            _discard(self._pods, each, key)
        for each in anchors - before:
            self._pods.setdefault(each, {})[key] = None
        self._anchors[key] = anchors

    def remove_pod(self, key: Key) -> None:
        for each in self._anchors.pop(key, ()):
            _discard(self._pods, each, key)

    def put_set(self, name: str, anchors: Iterable[Anchor]) -> None:
        for each in anchors:
            self._sets.setdefault(each, {})[name] = None

    def remove_set(self, name: str, anchors: Iterable[Anchor]) -> None:
        for each in anchors:
            _discard(self._sets, each, name)

    def sets_of(self, key: Key) -> set[str]:
        """Return the sets that may have elements of a pod."""
        return {name for each in self._anchors.get(key, ()) for name in self._sets.get(each, ())}

    def pods_of(self, anchors: Iterable[Anchor]) -> set[Key]:
        """Return the pods that may have elements in a set."""
        return {key for each in anchors for key in self._pods.get(each, ())}


def _discard(held: dict[Anchor, dict[K, None]], anchor: Anchor, what: K) -> None:
    found = held[anchor]
    del found[what]
    if not found:
        del held[anchor]
