"""The nodes and pods of the watch cache, as kedge.metrics needs to know them."""

from collections.abc import Iterable

import msgspec

from kedge.api.core_v1 import node
from kedge.api.core_v1.pod import pod
from kedge.apiserver.metrics.groups import CachedPodGroups
from kedge.apiserver.watchcache import Change, Item, WatchCache
from kedge.machinery.clock import Clock
from kedge.metrics.reports import ObjectIdentity, UsageReports
from kedge.metrics.scrape.cluster import NodeSketch, PodSketch
from kedge.metrics.windows import SHORTEST


class IdentityMeta(msgspec.Struct, frozen=True):
    """Metadata of a reported object."""

    uid: str = ""
    labels: dict[str, str] = {}


class IdentitySpec(msgspec.Struct, frozen=True, rename="camel"):
    """The node of a reported pod."""

    node_name: str = ""


class IdentitySketch(msgspec.Struct, frozen=True):
    """The fields of a node or pod that make its identity."""

    metadata: IdentityMeta = IdentityMeta()
    spec: IdentitySpec = IdentitySpec()


class ClaimSketch(msgspec.Struct, frozen=True, rename="camel"):
    """The claim of a volume."""

    claim_name: str = ""


class ClaimingVolume(msgspec.Struct, frozen=True, rename="camel"):
    """A volume of a pod."""

    name: str = ""
    persistent_volume_claim: ClaimSketch | None = None
    ephemeral: msgspec.Raw | None = None

    def claim_of(self, pod: str) -> str:
        """Return the name of its claim; empty if it has none."""
        if self.persistent_volume_claim is not None:
            return self.persistent_volume_claim.claim_name
        return f"{pod}-{self.name}" if self.ephemeral is not None else ""


class ClaimingSpec(msgspec.Struct, frozen=True):
    """The volumes of a pod."""

    volumes: list[ClaimingVolume] = []


class ClaimingPod(msgspec.Struct, frozen=True):
    """The fields of a pod that say which claims it uses."""

    spec: ClaimingSpec = ClaimingSpec()


_claiming = msgspec.json.Decoder(ClaimingPod)
_identity = msgspec.json.Decoder(IdentitySketch)
_pod = msgspec.json.Decoder(PodSketch)
_node = msgspec.json.Decoder(NodeSketch)


class CachedCluster:
    """Reads the caches of a server. Fulfils ObjectIdentities and ScrapedCluster."""

    def __init__(self, cache: WatchCache) -> None:
        self._pods = cache.of(pod.RESOURCE)
        self._nodes = cache.of(node.RESOURCE)
        self._decoded: dict[str, tuple[Item, PodSketch]] = {}
        """Pods that scraping looks up every few seconds, each until it changes."""
        self._pods.listeners.add(self._pod_changed)

    def node_identity(self, name: str) -> ObjectIdentity | None:
        return _identified(self._nodes.get(self._nodes.resource.key("", name)))

    def pod_identity(self, namespace: str, name: str) -> ObjectIdentity | None:
        return _identified(self._pods.get(self._pods.resource.key(namespace, name)))

    def claims_of(self, namespace: str, pod: str) -> frozenset[str]:
        item = self._pods.get(self._pods.resource.key(namespace, pod))
        if item is None or b'"volumes"' not in item.body:
            return frozenset()
        volumes = _claiming.decode(item.body).spec.volumes
        return frozenset(filter(None, (each.claim_of(pod) for each in volumes)))

    def nodes(self) -> Iterable[NodeSketch]:
        return [_node.decode(item.body) for item in self._nodes.values()]

    def node(self, name: str) -> NodeSketch | None:
        item = self._nodes.get(self._nodes.resource.key("", name))
        return None if item is None else _node.decode(item.body)

    def pod(self, namespace: str, name: str) -> PodSketch | None:
        key = self._pods.resource.key(namespace, name)
        item = self._pods.get(key)
        if item is None:
            self._decoded.pop(key, None)
            return None
        decoded = self._decoded.get(key)
        if decoded is None or decoded[0] is not item:
            decoded = self._decoded[key] = (item, _pod.decode(item.body))
        return decoded[1]

    def _pod_changed(self, change: Change | None) -> None:
        # A deleted pod may never be asked for again, so `pod` alone would not drop it.
        if change is not None and change.type == "DELETED":
            self._decoded.pop(change.item.key, None)

    def uids(self) -> set[str]:
        """The uids of all nodes and pods."""
        items = (*self._nodes.values(), *self._pods.values())
        return {_node.decode(item.body).metadata.uid for item in items}


def node_reports(cache: WatchCache, clock: Clock, *, usage_window: str = SHORTEST) -> UsageReports:
    """Reports that follow the nodes and pods of a cache."""
    reports = UsageReports(
        CachedCluster(cache), CachedPodGroups(cache), clock, usage_window=usage_window
    )
    pods, nodes = cache.of(pod.RESOURCE), cache.of(node.RESOURCE)

    def pod_changed(change: Change | None) -> None:
        if change is None:
            return
        key = change.item.key.removeprefix(pods.resource.prefix)
        if change.type == "DELETED":
            reports.pod_deleted(key)
        elif key in reports.pods.entries:
            # Labels are decoded on first use, so they are read only if they are needed.
            reports.relabel_pod(key, change.item.labels)

    def node_changed(change: Change | None) -> None:
        if change is None:
            return
        name = change.item.key.removeprefix(nodes.resource.prefix)
        if change.type == "DELETED":
            reports.node_deleted(name)
        elif name in reports.nodes.entries:
            reports.relabel_node(name, change.item.labels)

    pods.listeners.add(pod_changed)
    nodes.listeners.add(node_changed)
    return reports


def _identified(item: Item | None) -> ObjectIdentity | None:
    if item is None:
        return None
    found = _identity.decode(item.body)
    return ObjectIdentity(found.metadata.uid, found.metadata.labels, found.spec.node_name)
