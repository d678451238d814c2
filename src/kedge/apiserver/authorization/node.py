"""Nodes: each may read what its own pods use, report on itself and on them, and no more."""

from collections.abc import Callable
from sys import intern
from typing import Final

from kedge.api.catalog import Catalog
from kedge.api.core_v1.pod import pod
from kedge.api.storage_v1.local_volumes import CAPACITY_NAMESPACE, VOLUME_NODE, node_label
from kedge.apiserver.authorization import defaults, references
from kedge.apiserver.authorization.attributes import Attributes, Decision
from kedge.apiserver.authorization.cache_follower import follow, place_of
from kedge.apiserver.authorization.references import Reference, Volumed
from kedge.apiserver.authorization.rights import Rights, keys_of
from kedge.apiserver.request import User
from kedge.apiserver.watchcache import Item, ResourceCache, WatchCache
from kedge.machinery.selectors import Requirement
from kedge.settings.cluster import COURSE_PATH

PREFIX: Final = "system:node:"
GROUP: Final = "system:nodes"
LEASES: Final = "kube-node-lease"

ALLOWED: Final = Decision(True)
NO_OPINION: Final = Decision(False)

_LATE: Final = (
    b'"ephemeralContainers"',
    b'"resourceClaimStatuses"',
    b'"extendedResourceClaimStatus"',
)
"""The fields through which a pod that already has a node may come to refer to more."""
_OWN_VERBS: Final = ("get", "create", "update", "patch", "delete")


def node_name(user: User) -> str | None:
    """Which node a user is; empty for a node without a name, None for those who are no nodes."""
    if not user.name.startswith(PREFIX) or GROUP not in user.groups:
        return None
    return user.name[len(PREFIX) :]


class Graph:
    """Which node may see which object, because of what is bound to the node."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, frozenset[Reference]]] = {}
        """By the key of what is bound: its node, and what it refers to."""
        self._nodes: dict[Reference, dict[str, int]] = {}
        """By object: the nodes that may see it, each with the number of reasons."""
        self._volumes: dict[str, Volumed] = {}
        self._volumes_with: dict[Reference, set[str]] = {}
        """Persistent volumes by secret."""

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def put(self, key: str, node: str, seen: frozenset[Reference]) -> None:
        """Something is bound to a node, which therefore may see these objects."""
        if self._held.get(key) == (node, seen):
            return
        self.drop(key)
        self._held[key] = intern(node), seen
        for each in seen:
            nodes = self._nodes.setdefault(each, {})
            nodes[node] = nodes.get(node, 0) + 1

    def drop(self, key: str) -> None:
        node, seen = self._held.pop(key, ("", frozenset[Reference]()))
        for each in seen:
            nodes = self._nodes[each]
            nodes[node] -= 1
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._nodes[each]

    def put_volume(self, name: str, volume: Volumed | None) -> None:
        """A persistent volume as it is bound now."""
        before = self._volumes.pop(name, None)
        if before is not None:
            for secret in before.secrets:
                self._volumes_with[secret].discard(name)
                if not self._volumes_with[secret]:
                    del self._volumes_with[secret]
        if volume is not None:
            self._volumes[name] = volume
            for secret in volume.secrets:
                self._volumes_with.setdefault(secret, set()).add(name)

    def sees(self, node: str, what: Reference) -> bool:
        """Whether anything bound to the node leads to the object."""
        if what.plural == "pods":
            # Thousands; a node sees its own and no other.
            held = self._held.get(pod.RESOURCE.key(what.namespace, what.name))
            return held is not None and held[0] == node
        if node in self._nodes.get(what, ()):
            return True
        if what.plural == "persistentvolumes":
            return self._claims(node, what.name)
        volumes = self._volumes_with.get(what, ())
        return any(self._claims(node, volume) for volume in volumes)

    def _claims(self, node: str, volume: str) -> bool:
        found = self._volumes.get(volume)
        return found is not None and node in self._nodes.get(found.claim, ())


class NodeAuthorizer:
    """Decides about requests of nodes; it has no opinion on other users."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rights = Rights(defaults.node_rules())
        self._special: dict[tuple[str, str], Callable[[str, Attributes], Decision]] = {
            ("", "secrets"): self._read,
            ("", "configmaps"): self._read,
            ("", "persistentvolumeclaims"): self._claim,
            ("", "persistentvolumes"): self._volume,
            ("", "serviceaccounts"): self._service_account,
            ("", "nodes"): self._node,
            ("", "pods"): self._pod,
            ("coordination.k8s.io", "leases"): self._lease,
            ("storage.k8s.io", "csinodes"): self._csi_node,
            ("storage.k8s.io", "csistoragecapacities"): self._capacity,
            ("storage.k8s.io", "volumeattachments"): self._get,
            ("resource.k8s.io", "resourceclaims"): self._get,
            ("resource.k8s.io", "resourceslices"): self._slice,
            # Upstream's gate for these is closed by default.
            ("certificates.k8s.io", "podcertificaterequests"): lambda node, asked: NO_OPINION,
        }

    def decide(self, asked: Attributes) -> Decision:
        node = node_name(asked.user)
        if node is None:
            return NO_OPINION
        if not node:
            return Decision(False, f'unknown node for user "{asked.user.name}"')
        if asked.path == COURSE_PATH and asked.verb == "get":
            return ALLOWED
        special = self._special.get((asked.group, asked.plural))
        if special is not None:
            return special(node, asked)
        keys = keys_of(asked.group, asked.resource)
        allowed = bool(asked.plural) and self._rights.allow(keys, asked.verb, asked.name)
        return ALLOWED if allowed else NO_OPINION

    def _related(self, node: str, asked: Attributes) -> Decision:
        if not asked.name:
            return Decision(False, "No Object name found")
        if self._graph.sees(node, Reference(asked.plural, asked.namespace, asked.name)):
            return ALLOWED
        return Decision(False, f"no relationship found between node '{node}' and this object")

    def _read(self, node: str, asked: Attributes) -> Decision:
        if asked.verb not in ("get", "list", "watch"):
            return Decision(False, "can only read resources of this type")
        if asked.subresource:
            return Decision(False, "cannot read subresource")
        if not asked.namespace:
            return Decision(False, "can only read namespaced object of this type")
        return self._related(node, asked)

    def _get(self, node: str, asked: Attributes) -> Decision:
        if asked.verb != "get":
            return Decision(False, "can only get individual resources of this type")
        if asked.subresource:
            return Decision(False, "cannot get subresource")
        return self._related(node, asked)

    def _volume(self, node: str, asked: Attributes) -> Decision:
        """Volumes of kedge's own driver live on nodes. A node follows those with its label, to see
        which are deleted, and then removes its finalizer: admission looks at that. It follows
        volumes of its pods by name, to see which grow."""
        if asked.subresource or asked.verb not in ("list", "watch", "update", "patch"):
            return self._get(node, asked)
        if asked.verb in ("update", "patch"):
            return ALLOWED
        own = Requirement(VOLUME_NODE, "=", (node_label(node),))
        if own in asked.labels.requirements:
            return ALLOWED
        if asked.name:
            return self._related(node, asked)
        return Decision(False, f"can only list/watch persistentvolumes with label {own}")

    def _capacity(self, node: str, asked: Attributes) -> Decision:
        """A node publishes the free space for its volumes; which objects, admission looks at."""
        if asked.namespace != CAPACITY_NAMESPACE or asked.verb not in _OWN_VERBS:
            return NO_OPINION
        return ALLOWED

    def _claim(self, node: str, asked: Attributes) -> Decision:
        if asked.subresource != "status":
            return self._get(node, asked)
        if asked.verb not in ("update", "patch"):
            return Decision(False, "can only get/update/patch this type")
        return self._related(node, asked)

    def _service_account(self, node: str, asked: Attributes) -> Decision:
        """Tokens only for accounts of pods that run here; which pod, admission looks at."""
        if asked.verb == "get" and not asked.subresource:
            return self._read(node, asked)
        if asked.verb != "create" or not asked.name:
            return Decision(False, "can only create tokens for individual service accounts")
        if asked.subresource != "token":
            return Decision(False, "can only create token subresource of serviceaccount")
        return self._related(node, asked)

    def _node(self, node: str, asked: Attributes) -> Decision:
        """Which Node is written is not known here in all cases: admission looks at it."""
        match asked.subresource, asked.verb:
            case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
                return ALLOWED
            case "", "list" | "watch" if not asked.name:
                # As with kube-proxy: routes lead to the pods of other nodes.
                return ALLOWED
            case "", "get" | "list" | "watch":
                if asked.name == node:
                    return ALLOWED
                why = f"node '{node}' cannot read '{asked.name}', only its own Node object"
                return Decision(False, why)
        return NO_OPINION

    def _pod(self, node: str, asked: Attributes) -> Decision:
        """Decide about pods.

        Admission checks whose pods a node creates, deletes, evicts or reports on.
        """
        match asked.subresource, asked.verb:
            case "", "get":
                return self._related(node, asked)
            case "", "list" | "watch":
                if asked.fields.exact("spec.nodeName") == node or asked.addresses_only:
                    return ALLOWED
                if asked.name:
                    return self._related(node, asked)
                why = "can only list/watch pods with spec.nodeName field selector"
                return Decision(False, why)
            case (
                ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create")
            ):
                return ALLOWED
        return NO_OPINION

    def _lease(self, node: str, asked: Attributes) -> Decision:
        if asked.verb not in _OWN_VERBS:
            return Decision(False, "can only get, create, update, patch, or delete a node lease")
        if asked.namespace != LEASES:
            return Decision(False, f'can only access leases in the "{LEASES}" system namespace')
        if asked.verb != "create" and asked.name != node:
            why = "can only access node lease with the same name as the requesting node"
            return Decision(False, why)
        return ALLOWED

    def _csi_node(self, node: str, asked: Attributes) -> Decision:
        if asked.verb not in _OWN_VERBS:
            return Decision(False, "can only get, create, update, patch, or delete a CSINode")
        if asked.subresource:
            return Decision(False, "cannot authorize CSINode subresources")
        if asked.verb != "create" and asked.name != node:
            why = "can only access CSINode with the same name as the requesting node"
            return Decision(False, why)
        return ALLOWED

    def _slice(self, node: str, asked: Attributes) -> Decision:
        if asked.subresource:
            return Decision(False, "cannot authorize ResourceSlice subresources")
        match asked.verb:
            case "create":
                return ALLOWED
            case "get" | "update" | "patch" | "delete":
                return self._related(node, asked)
            case "list" | "watch" | "deletecollection":
                if asked.fields.exact("spec.nodeName") == node:
                    return ALLOWED
                why = "can only list/watch/deletecollection resourceslices with nodeName"
                return Decision(False, f"{why} field selector")
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return Decision(False, f"only the following verbs are allowed for a ResourceSlice: {verbs}")


def followed(cache: WatchCache, catalog: Catalog) -> Graph:
    """A graph that keeps up with the pods, volumes and whatever else is bound to nodes."""
    graph = Graph()

    def take_volume(objects: ResourceCache, item: Item) -> None:
        gone = objects.get(item.key) is None
        volume = None if gone else references.of_volume(item.document())
        graph.put_volume(place_of(objects, item)[1], volume)

    def take_bound(objects: ResourceCache, item: Item) -> None:
        bound = objects.get(item.key) is not None
        node = (item.document().get("spec") or {}).get("nodeName", "") if bound else ""
        if node:
            seen = Reference(objects.resource.plural, *place_of(objects, item))
            graph.put(item.key, node, frozenset([seen]))
        else:
            graph.drop(item.key)

    def take_pod(objects: ResourceCache, item: Item) -> None:
        if objects.get(item.key) is None:
            graph.drop(item.key)
        elif b'"nodeName"' in item.body and not _known(graph, item):
            found = pod.RESOURCE.decode(item.body)
            if found.spec.nodeName:
                graph.put(item.key, found.spec.nodeName, references.of_pod(found))

    follow(cache.of(pod.RESOURCE), take_pod)
    for group, plural, take in (
        ("", "persistentvolumes", take_volume),
        ("storage.k8s.io", "volumeattachments", take_bound),
        ("resource.k8s.io", "resourceslices", take_bound),
    ):
        resource = catalog.find(group, "v1", plural)
        assert resource is not None
        follow(cache.of(resource), take)
    return graph


def _known(graph: Graph, item: Item) -> bool:
    """Whether a pod can refer to nothing that the graph has not got already.

    Its node and most of its references never change, so that few of the many writes to a pod's
    status need a closer look.
    """
    return item.key in graph and not any(field in item.body for field in _LATE)
