"""What the cluster knows of its nodes and pods, as far as scraping has to know it."""

from collections.abc import Iterable
from typing import Final

import msgspec

from kedge.api.core_v1 import node
from kedge.api.core_v1.pod import pod
from kedge.apiserver.watchcache import Item, WatchCache

_PREFERRED: Final = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP", "ExternalDNS")
_DEFAULT_PORT: Final = 10250


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class Named(msgspec.Struct, frozen=True):
    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    node_name: str = ""
    containers: tuple[Named, ...] = ()
    init_containers: tuple[Named, ...] = ()
    ephemeral_containers: tuple[Named, ...] = ()


class KnownPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which containers a pod may have, and where."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()

    def containers(self) -> frozenset[str]:
        spec = self.spec
        every = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
        return frozenset(each.name for each in every)


class Address(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class Endpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    port: int = msgspec.field(name="Port", default=0)


class Endpoints(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    kubelet_endpoint: Endpoint = Endpoint()


class NodeStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    addresses: tuple[Address, ...] = ()
    daemon_endpoints: Endpoints = Endpoints()


class KnownNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a node's kubelet listens."""

    metadata: Meta = Meta()
    status: NodeStatus = NodeStatus()

    @property
    def host(self) -> str:
        """Empty if the node says nothing of it."""
        known = {each.type: each.address for each in reversed(self.status.addresses)}
        return next((known[kind] for kind in _PREFERRED if known.get(kind)), "")

    @property
    def port(self) -> int:
        return self.status.daemon_endpoints.kubelet_endpoint.port or _DEFAULT_PORT


_pod = msgspec.json.Decoder(KnownPod)
_node = msgspec.json.Decoder(KnownNode)


class Known:
    """Looks at the caches of a server."""

    def __init__(self, cache: WatchCache) -> None:
        self._pods = cache.of(pod.RESOURCE)
        self._nodes = cache.of(node.RESOURCE)
        self._read: dict[str, tuple[Item, KnownPod]] = {}
        """Pods that were asked for, as long as they have not changed."""

    def nodes(self) -> Iterable[KnownNode]:
        return [_node.decode(item.body) for item in self._nodes.values()]

    def node(self, name: str) -> KnownNode | None:
        item = self._nodes.get(self._nodes.resource.key("", name))
        return None if item is None else _node.decode(item.body)

    def pod(self, namespace: str, name: str) -> KnownPod | None:
        key = self._pods.resource.key(namespace, name)
        item = self._pods.get(key)
        if item is None:
            self._read.pop(key, None)
            return None
        read = self._read.get(key)
        if read is None or read[0] is not item:
            read = self._read[key] = (item, _pod.decode(item.body))
        return read[1]

    def uids(self) -> set[str]:
        """Of all nodes and pods there are."""
        items = (*self._nodes.values(), *self._pods.values())
        return {_node.decode(item.body).metadata.uid for item in items}
