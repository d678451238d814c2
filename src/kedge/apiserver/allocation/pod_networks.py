"""PodNetworks: no two nodes have the same pod network."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Final

from kedge.api.builtin.service_networks import LOOPBACK_PODS, NODE_PREFIX, POD_NETWORK
from kedge.api.core_v1.node_types import Node
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.allocation.ledger import RECORD_SECONDS
from kedge.apiserver.authorization.node import node_name
from kedge.apiserver.request import Request, dry_run
from kedge.apiserver.watchcache import ResourceCache
from kedge.machinery.errors import FieldError, invalid
from kedge.storage.store import Store

KEYS: Final = "/kedge/podnetworks/"


class PodNetworks:
    """Checks the network that a node claims for its pods, and holds it until the Node is stored.

    Other nodes send the packets for a pod network to the node whose `spec.podCIDR` it is. Only
    nodes are checked: administrators may write what they like, as upstream. The network of a Node
    never changes, which its validation guarantees. The plugin is part of what a Node is and cannot
    be turned off.
    """

    name = "PodNetworks"

    def __init__(self, nodes: ResourceCache, shared: Store | None = None) -> None:
        """`shared` is the store if there may be other servers, who hold networks too."""
        self._nodes = nodes
        self._shared = shared
        self._held: dict[int, tuple[str, IPv4Network]] = {}
        """By request: the node, and the network that is about to be stored."""

    async def mutate(self, attempt: Attempt) -> Object | None:
        node, request = attempt.object, attempt.request
        if isinstance(node, Node) and not request.subresource and _claims(attempt):
            self.release(request)
            network = self._checked(node)
            self._held[id(request)] = node.metadata.name, network
        return node

    async def validate(self, attempt: Attempt) -> None:
        """Claim the network before other servers do, now that only the store can refuse."""
        held = self._held.get(id(attempt.request))
        if self._shared is None or held is None or dry_run(attempt.request, "CreateOptions"):
            return
        from kedge.apiserver.several.records import claim

        name, network = held
        key = f"{KEYS}{network.network_address}"
        own = name.encode()
        found = await claim(
            self._shared, key, own, lambda entry: entry.value == own, RECORD_SECONDS
        )
        if found is None:
            raise _refusal(name, [str(network)], "is the network of a node that joins now")

    def holds(self, request: Request) -> bool:
        """Whether a network is about to be stored."""
        return id(request) in self._held

    def release(self, request: Request) -> None:
        """The write is over, one way or the other."""
        self._held.pop(id(request), None)

    def _checked(self, node: Node) -> IPv4Network:
        claimed = list(node.spec.podCIDRs) or [node.spec.podCIDR]
        name = node.metadata.name
        try:
            [network] = map(IPv4Network, claimed)
        except ValueError:
            raise _refusal(name, claimed, _SHAPE) from None
        within = any(network.subnet_of(each) for each in (POD_NETWORK, LOOPBACK_PODS))
        if network.prefixlen != NODE_PREFIX or not within:
            raise _refusal(name, claimed, _SHAPE)
        for holder, other in self._others(name):
            if network.overlaps(other):
                why = f'overlaps the network {other} of the node "{holder}"'
                raise _refusal(name, claimed, why)
        return network

    def _others(self, name: str) -> Iterator[tuple[str, IPv4Network]]:
        yield from (held for held in self._held.values() if held[0] != name)
        for item in self._nodes.values():
            document = item.document()
            spec, meta = document.get("spec") or {}, document.get("metadata") or {}
            if meta.get("name") == name:
                continue
            for cidr in spec.get("podCIDRs") or ():
                if ":" not in cidr:
                    yield meta.get("name", ""), IPv4Network(cidr, strict=False)


_SHAPE = f"must be one /{NODE_PREFIX} network of {POD_NETWORK}"


def _claims(attempt: Attempt) -> bool:
    """Whether a node sets the pod network of a Node that had none."""
    node, old = attempt.object, attempt.old
    if attempt.operation not in ("CREATE", "UPDATE") or node_name(attempt.request.user) is None:
        return False
    had = isinstance(old, Node) and (old.spec.podCIDR or old.spec.podCIDRs)
    return isinstance(node, Node) and not had and bool(node.spec.podCIDR or node.spec.podCIDRs)


def _refusal(name: str, claimed: list[str], why: str) -> Exception:
    return invalid("", "Node", name, [FieldError.invalid("spec.podCIDRs", claimed, why)])
