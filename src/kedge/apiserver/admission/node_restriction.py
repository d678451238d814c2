"""NodeRestriction: a node writes about itself and the pods it runs, and about nothing else."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from kedge.api.catalog import Catalog
from kedge.api.core_v1 import node, persistent_volume_claim
from kedge.api.core_v1.node_types import SIMULATED, Node
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.validation import MIRROR_POD
from kedge.api.model import Document, Object, ObjectMeta, OwnerReference
from kedge.api.resource import Resource
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.storage_v1 import persistent_volume
from kedge.api.storage_v1.local_volumes import (
    LOCAL_DATA,
    LOCAL_DRIVER,
    LOCAL_FINALIZER,
    capacity_name,
)
from kedge.api.storage_v1.persistent_volume import PersistentVolume, reachable_from
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin
from kedge.apiserver.admission.mirror_pods import is_mirror, reference
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.admission.token_audiences import audiences
from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.authorization.node import node_name
from kedge.apiserver.watchcache import Item, WatchCache
from kedge.machinery.errors import not_found

LEASES = "kube-node-lease"
RESTRICTED = "node-restriction.kubernetes.io"
"""The namespace of labels that only others put on nodes."""
OWN_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
OWN_LABELS = frozenset(
    (
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    )
)
"""Kubernetes' labels that a node knows best itself."""
NODE_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")

Check = Callable[["NodeRestriction", str, Attempt], str]
"""(plugin, node, attempt): why the node may not do it; empty if it may."""


class NodeRestriction(MutatingPlugin):
    """Lets a node write only its own objects and the pods that are bound to it."""

    name = "NodeRestriction"

    def __init__(
        self, cache: WatchCache, catalog: Catalog, may: Callable[[Attributes], bool]
    ) -> None:
        self.cache = cache
        self.catalog = catalog
        self.may = may
        """Whether a user has a permission, for objects that a node's pods do not imply."""

    async def mutate(self, attempt: Attempt) -> Object | None:
        """Changes nothing, but what a node wants must be judged before others add to it."""
        self._check(attempt)
        return attempt.object

    def _check(self, attempt: Attempt) -> None:
        who = node_name(attempt.request.user)
        if who is None:
            return
        if not who:
            user = attempt.request.user.name
            raise refused(attempt, f'could not determine node from user "{user}"')
        resource = attempt.request.resource
        check = _CHECKS.get((resource.group, resource.plural))
        why = check(self, who, attempt) if check is not None else ""
        if why:
            raise refused(attempt, why)

    def pod(self, namespace: str, name: str) -> Pod:
        return pod.RESOURCE.decode(self._item(pod.RESOURCE, namespace, name).body)

    def node(self, name: str) -> Node:
        return node.RESOURCE.decode(self._item(node.RESOURCE, "", name).body)

    def _item(self, resource: Resource[Any], namespace: str, name: str) -> Item:
        found = self.cache.of(resource).get(resource.key(namespace, name))
        if found is None:
            raise not_found(resource.group, resource.plural, name)
        return found


# Pods.


def _pods(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    match attempt.request.subresource:
        case "":
            return _pod(plugin, who, attempt)
        case "status":
            return _pod_status(who, attempt)
        case "eviction":
            if _runs(who, plugin.pod(attempt.request.namespace, attempt.request.name)):
                return ""
            return f"node {who} can only evict pods with spec.nodeName set to itself"
        case other:
            return (
                f"unexpected pod subresource \"{other}\", only 'status' and 'eviction' are allowed"
            )


def _pod(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    if attempt.operation == "DELETE":
        if _runs(who, attempt.old):
            return ""
        return f'node "{who}" can only delete pods with spec.nodeName set to itself'
    if attempt.operation != "CREATE" or not isinstance(attempt.object, Pod):
        return (
            f'unexpected operation "{attempt.operation}", '
            f'node "{who}" can only create and delete mirror pods'
        )
    made = attempt.object
    if not is_mirror(made):
        return (
            f'pod does not have "{MIRROR_POD}" annotation, node "{who}" can only create mirror pods'
        )
    if made.spec.nodeName != who:
        return f'node "{who}" can only create pods with spec.nodeName set to itself'
    if why := _owner(plugin, who, made):
        return why
    if referred := reference(made):
        return f'node "{who}" can not create pods that reference {referred}'
    return ""


def _owner(plugin: NodeRestriction, who: str, made: Pod) -> str:
    """A mirror pod belongs to its node, so that it goes when the node goes."""
    owners = made.metadata.ownerReferences
    if len(owners) > 1:
        return f'node "{who}" can only create pods with a single owner reference set to itself'
    if not owners or _named(owners[0]) != ("v1", "Node", who):
        return f'node "{who}" can only create pods with an owner reference set to itself'
    if not owners[0].controller:
        return f'node "{who}" can only create pods with a controller owner reference set to itself'
    if owners[0].blockOwnerDeletion:
        return f'node "{who}" must not set blockOwnerDeletion on an owner reference'
    uid = plugin.node(who).metadata.uid
    if owners[0].uid != uid:
        return f"node {who} UID mismatch: expected {owners[0].uid} got {uid}"
    return ""


def _named(owner: OwnerReference) -> tuple[str, str, str]:
    return owner.apiVersion, owner.kind, owner.name


def _pod_status(who: str, attempt: Attempt) -> str:
    new, old = attempt.object, attempt.old
    if attempt.operation != "UPDATE" or not isinstance(new, Pod) or not isinstance(old, Pod):
        return f'unexpected operation "{attempt.operation}"'
    if not _runs(who, old):
        return f'node "{who}" can only update pod status for pods with spec.nodeName set to itself'
    if new.metadata.labels != old.metadata.labels:
        return f'node "{who}" cannot update labels through pod status'
    if list(new.status.resourceClaimStatuses) != list(old.status.resourceClaimStatuses):
        return f'node "{who}" cannot update resource claim statues'
    if new.status.extendedResourceClaimStatus != old.status.extendedResourceClaimStatus:
        return f'node "{who}" cannot update extended resource claim status'
    return ""


def _runs(who: str, obj: Object | None) -> bool:
    return isinstance(obj, Pod) and obj.spec.nodeName == who


# The node itself.


def _nodes(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    if attempt.request.name != who:
        return f'node "{who}" is not allowed to modify node "{attempt.request.name}"'
    new, old = attempt.object, attempt.old
    if not isinstance(new, Node):
        return ""
    if attempt.operation == "CREATE":
        if new.spec.configSource is not None:
            return f'node "{who}" is not allowed to create pods with a non-nil configSource'
        if labels := ", ".join(forbidden_labels(new.metadata.labels, {})):
            return f'node "{who}" is not allowed to set the following labels: {labels}'
        return ""
    return _node_update(who, new, old) if isinstance(old, Node) else ""


def _node_update(who: str, new: Node, old: Node) -> str:
    source = new.spec.configSource
    if source is not None and source != old.spec.configSource:
        return f'node "{who}" is not allowed to update configSource to a new non-nil configSource'
    if list(new.spec.taints) != list(old.spec.taints):
        return f'node "{who}" is not allowed to modify taints'
    if list(new.metadata.ownerReferences) != list(old.metadata.ownerReferences):
        return f'node "{who}" is not allowed to modify ownerReferences'
    if labels := ", ".join(forbidden_labels(new.metadata.labels, old.metadata.labels)):
        return f"is not allowed to modify labels: {labels}"
    return ""


def forbidden_labels(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """The labels that differ and through which a node could draw work to itself."""
    keys = sorted(new.keys() | old.keys())
    return [key for key in keys if new.get(key) != old.get(key) and not _may_label(key)]


def _may_label(key: str) -> bool:
    namespace = key.partition("/")[0] if "/" in key else ""
    if key == SIMULATED or _within(namespace, RESTRICTED):
        # The server acts in the name of a simulated node: a node must not ask for that itself.
        return False
    if not _within(namespace, "kubernetes.io") and not _within(namespace, "k8s.io"):
        return True
    return key in OWN_LABELS or any(_within(namespace, own) for own in OWN_NAMESPACES)


def _within(namespace: str, domain: str) -> bool:
    return namespace == domain or namespace.endswith(f".{domain}")


# Checks of other resources.


def _claims(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    if attempt.request.subresource != "status":
        return "may only update PVC status"
    new, old = attempt.object, attempt.old
    if not isinstance(new, PersistentVolumeClaim) or not isinstance(old, PersistentVolumeClaim):
        return f'unexpected operation "{attempt.operation}"'
    if _beyond_size(new) == _beyond_size(old):
        return ""
    return (
        f'node "{who}" is not allowed to update fields other than '
        "status.quantity and status.conditions"
    )


def _beyond_size(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Everything about a claim that a node which grows its volume has no part in."""
    meta = replace(claim.metadata, resourceVersion="", managedFields=())
    status = replace(
        claim.status,
        capacity={},
        conditions=(),
        allocatedResources={},
        allocatedResourceStatuses={},
    )
    return persistent_volume_claim.RESOURCE.to_document(
        replace(claim, metadata=meta, status=status)
    )


def _tokens(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    wanted = attempt.object
    request = attempt.request
    if attempt.operation != "CREATE" or request.subresource != "token":
        return ""
    if not isinstance(wanted, Document):
        return f"unexpected type {type(wanted).__name__}"
    spec = wanted.content.get("spec") or {}
    ref = spec.get("boundObjectRef") or {}
    if (ref.get("apiVersion"), ref.get("kind")) != ("v1", "Pod") or not ref.get("name"):
        return "node requested token not bound to a pod"
    if not ref.get("uid"):
        return "node requested token with a pod binding without a uid"
    bound = plugin.pod(request.namespace, ref["name"])
    if ref["uid"] != bound.metadata.uid:
        return (
            f"the UID in the bound object reference ({ref['uid']}) does not match the UID in "
            "record. The object might have been deleted and then recreated"
        )
    if bound.spec.nodeName != who:
        return "node requested token bound to a pod scheduled on a different node"
    return _audience(plugin, attempt, bound, spec.get("audiences") or [])


def _audience(plugin: NodeRestriction, attempt: Attempt, bound: Pod, wanted: list[str]) -> str:
    """A token is for those the pod speaks to: the API server, or whom its volumes name."""
    if len(wanted) > 1:
        return "node may only request 0 or 1 audiences"
    audience = wanted[0] if wanted else ""
    if audience in audiences(plugin.cache, plugin.catalog, bound):
        return ""
    request = attempt.request
    asked = Attributes(
        user=request.user,
        verb="request-serviceaccounts-token-audience",
        version="v1",
        plural=audience,
        namespace=request.namespace,
        name=request.name,
    )
    if plugin.may(asked):
        return ""
    return (
        f'audience "{audience}" not found in pod spec volume, {request.user.name} is not '
        "authorized to request tokens for this audience"
    )


def _volumes(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    """A node marks local volumes whose data it has made, and takes its finalizer off volumes of
    its own that are being deleted."""
    new, old = attempt.object, attempt.old
    if not isinstance(new, Document) or not isinstance(old, Document):
        return f'unexpected operation "{attempt.operation}"'
    volume = persistent_volume.decode(msgspec.json.encode(old.content))
    if not _is_on_node(plugin, who, volume):
        return f'node "{who}" can only update local volumes of its own'
    if new.content == old.content and _bare(new.metadata) == _marked(old.metadata, who):
        return ""
    if not old.metadata.deletionTimestamp or volume.spec.nodeAffinity is None:
        return f'node "{who}" can only update volumes of its own that are being deleted'
    left = tuple(each for each in old.metadata.finalizers if each != LOCAL_FINALIZER)
    if new.content != old.content or _bare(new.metadata) != _bare(
        replace(old.metadata, finalizers=left)
    ):
        return f'node "{who}" can only remove the finalizer "{LOCAL_FINALIZER}" of a volume'
    return ""


def _bare(meta: ObjectMeta) -> ObjectMeta:
    """Return metadata without what the server writes."""
    return replace(meta, finalizers=tuple(meta.finalizers), managedFields=(), resourceVersion="")


def _marked(meta: ObjectMeta, who: str) -> ObjectMeta:
    """Return the metadata of a volume with the mark of a node, unless it has one."""
    return _bare(replace(meta, annotations={LOCAL_DATA: who, **meta.annotations}))


def _is_on_node(plugin: NodeRestriction, who: str, volume: PersistentVolume) -> bool:
    labels = plugin.node(who).metadata.labels
    return volume.driver == LOCAL_DRIVER and reachable_from(volume)(who, labels)


def _capacities(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    for obj in (attempt.object, attempt.old):
        if not isinstance(obj, Document):
            continue
        content = obj.content
        if obj.metadata.name != capacity_name(who, content.get("storageClassName", "")):
            return f'node "{who}" can only write the storage capacity of itself'
        hostname = plugin.node(who).metadata.labels.get("kubernetes.io/hostname", who)
        if content.get("nodeTopology") != {"matchLabels": {"kubernetes.io/hostname": hostname}}:
            return f'node "{who}" can only write storage capacity with its own topology'
    return ""


def _leases(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    if attempt.request.namespace != LEASES:
        return f'can only access leases in the "{LEASES}" system namespace'
    return _same_name(who, attempt, "node lease")


def _csi_nodes(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    return _same_name(who, attempt, "CSINode")


def _same_name(who: str, attempt: Attempt, what: str) -> str:
    if attempt.request.name == who:
        return ""
    return f"can only access {what} with the same name as the requesting node"


def _slices(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    if attempt.operation == "CREATE":
        verb, slice_ = "create", attempt.object
    elif attempt.operation == "DELETE":
        verb, slice_ = "delete", attempt.old
    else:
        return ""
    if isinstance(slice_, ResourceSlice) and slice_.spec.nodeName == who:
        return ""
    return f"can only {verb} ResourceSlice with the same NodeName as the requesting node"


def _certificates(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    if attempt.operation != "CREATE" or not isinstance(attempt.object, Document):
        return ""
    spec = attempt.object.content.get("spec") or {}
    if spec.get("signerName") not in NODE_SIGNERS:
        return ""
    try:
        name = requested_name(spec.get("request", ""))
    except ValueError as error:
        return f"unable to parse csr: {error}"
    wanted = f"system:node:{who}"
    return "" if name == wanted else f"can only create a node CSR with CN={wanted}"


def requested_name(request: str) -> str:
    """The common name that a certificate is asked for; ValueError if nothing can be read."""
    # Only here: it takes longer to import than all other plugins together.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_pem_x509_csr(base64.b64decode(request)).subject
    return "".join(str(part.value) for part in subject.get_attributes_for_oid(NameOID.COMMON_NAME))


def _pod_certificates(plugin: NodeRestriction, who: str, attempt: Attempt) -> str:
    return "PodCertificateRequest feature gate is disabled"


_CHECKS: dict[tuple[str, str], Check] = {
    ("", "pods"): _pods,
    ("", "nodes"): _nodes,
    ("", "persistentvolumeclaims"): _claims,
    ("", "persistentvolumes"): _volumes,
    ("", "serviceaccounts"): _tokens,
    ("coordination.k8s.io", "leases"): _leases,
    ("storage.k8s.io", "csinodes"): _csi_nodes,
    ("storage.k8s.io", "csistoragecapacities"): _capacities,
    ("resource.k8s.io", "resourceslices"): _slices,
    ("certificates.k8s.io", "certificatesigningrequests"): _certificates,
    ("certificates.k8s.io", "podcertificaterequests"): _pod_certificates,
}
"""The check for each resource that nodes write; authorization alone decides about all others."""
