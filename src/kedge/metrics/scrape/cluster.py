"""The facts about nodes and pods that scraping needs, and the protocols that provide them."""

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

_PREFERRED: Final = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP", "ExternalDNS")
_DEFAULT_PORT: Final = 10250


class SketchMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metadata of a node or pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class SketchContainer(msgspec.Struct, frozen=True):
    """A container of any sort."""

    name: str = ""


class PodSketchSpec(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The node and the containers of a pod."""

    node_name: str = ""
    containers: tuple[SketchContainer, ...] = ()
    init_containers: tuple[SketchContainer, ...] = ()
    ephemeral_containers: tuple[SketchContainer, ...] = ()


class PodSketch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a pod that scraping needs: its node, and the names of its containers."""

    metadata: SketchMeta = SketchMeta()
    spec: PodSketchSpec = PodSketchSpec()

    def containers(self) -> frozenset[str]:
        spec = self.spec
        every = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
        return frozenset(each.name for each in every)


class SketchAddress(msgspec.Struct, frozen=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class SketchEndpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The port of the kubelet."""

    port: int = msgspec.field(name="Port", default=0)


class SketchEndpoints(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The daemon endpoints of a node."""

    kubelet_endpoint: SketchEndpoint = SketchEndpoint()


class NodeSketchStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Addresses and ports of a node."""

    addresses: tuple[SketchAddress, ...] = ()
    daemon_endpoints: SketchEndpoints = SketchEndpoints()


class NodeSketch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a node that scraping needs: the address of its kubelet."""

    metadata: SketchMeta = SketchMeta()
    status: NodeSketchStatus = NodeSketchStatus()

    @property
    def host(self) -> str:
        """The address of the kubelet; empty if the node has none."""
        known = {each.type: each.address for each in reversed(self.status.addresses)}
        return next((known[kind] for kind in _PREFERRED if known.get(kind)), "")

    @property
    def host_name(self) -> str:
        """The name in the certificate of the kubelet; empty if the node has none."""
        known = (each.address for each in self.status.addresses if each.type == "Hostname")
        return next(known, "")

    @property
    def port(self) -> int:
        return self.status.daemon_endpoints.kubelet_endpoint.port or _DEFAULT_PORT


class ScrapedCluster(Protocol):
    """The nodes and pods of a cluster (kedge.apiserver.metrics.cluster)."""

    def nodes(self) -> Iterable[NodeSketch]: ...

    def node(self, name: str) -> NodeSketch | None: ...

    def pod(self, namespace: str, name: str) -> PodSketch | None: ...

    def uids(self) -> set[str]:
        """The uids of all nodes and pods."""
        ...


class KubeletError(Exception):
    """A kubelet cannot be reached, or does not answer as a kubelet does."""


class KubeletClient(Protocol):
    """Connections to kubelets (kedge.apiserver.metrics.kubelets)."""

    async def fetch(self, node: NodeSketch) -> bytes:
        """The page of a node; raises KubeletError or OSError."""
        ...

    async def forget(self, name: str) -> None: ...

    async def close(self) -> None: ...
