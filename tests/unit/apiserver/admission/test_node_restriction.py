import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from kedge.api.catalog import Catalog
from kedge.api.core_v1 import node, persistent_volume_claim, service_account
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Document, Object, ObjectMeta
from kedge.api.resource import Resource
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.resource_v1.resource_slice_types import ResourceSliceSpec
from kedge.api.storage_v1.local_volumes import LOCAL_DATA, capacity_name
from kedge.apiserver.admission.chain import Operation
from kedge.apiserver.admission.node_restriction import NodeRestriction
from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.request import User
from kedge.machinery.errors import StatusError
from kedge.testing.admission import SOMEBODY, attempt, cache_with
from kedge.testing.pods import new_pod, pod_document

CATALOG = Catalog()
NODE = User("system:node:n1", ("system:nodes", "system:authenticated"))
UID = "node-uid"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": UID, "controller": True}
MIRROR = {"kubernetes.io/config.mirror": "x"}


def kind(group: str, plural: str) -> Resource[Any]:
    found = CATALOG.find(group, "v1", plural)
    assert found is not None
    return found


RESOURCES: list[Resource[Any]] = [
    node.RESOURCE,
    pod.RESOURCE,
    persistent_volume_claim.RESOURCE,
    kind("", "persistentvolumes"),
    kind("storage.k8s.io", "csidrivers"),
]


async def plugin(*pods: dict[str, Any], allowed: str = "") -> NodeRestriction:
    stored = [(pod.RESOURCE, document) for document in pods]
    labels = {"kubernetes.io/hostname": "n1"}
    self = (node.RESOURCE, {"metadata": {"name": "n1", "uid": UID, "labels": labels}})
    cache = await cache_with(RESOURCES, [self, *stored])

    def may(asked: Attributes) -> bool:
        return asked.plural == allowed

    return NodeRestriction(cache, CATALOG, may)


async def outcome(
    resource: Resource[Any],
    operation: Operation,
    obj: Object | None,
    old: Object | None = None,
    *,
    user: User = NODE,
    subresource: str = "",
    restriction: NodeRestriction | None = None,
) -> str:
    """Why a node may not do it; empty if it may."""
    tried = attempt(resource, operation, obj, old, user=user, subresource=subresource)
    rule = restriction or await plugin()
    try:
        assert await rule.mutate(tried) is obj
        await rule.validate(tried)
    except StatusError as refusal:
        return refusal.message.partition(" is forbidden: ")[2] if refusal.code == 403 else "?"
    return ""


# Pods.


def mirror(*, owners: list[dict[str, Any]] | None = None, **spec: Any) -> Pod:
    owned = [OWNER] if owners is None else owners
    meta = {"annotations": MIRROR, "ownerReferences": owned}
    return new_pod(metadata=meta, spec={"nodeName": "n1"} | spec)


async def test_a_node_may_create_the_mirror_of_its_own_pod() -> None:
    files = {"name": "v", "hostPath": {"path": "/x"}}
    assert await outcome(pod.RESOURCE, "CREATE", mirror(volumes=[files])) == ""


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            new_pod(spec={"nodeName": "n1"}),
            'pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create '
            "mirror pods",
        ),
        (mirror(nodeName="n2"), 'node "n1" can only create pods with spec.nodeName set to itself'),
        (
            mirror(owners=[]),
            'node "n1" can only create pods with an owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER | {"name": "n2"}]),
            'node "n1" can only create pods with an owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER, OWNER]),
            'node "n1" can only create pods with a single owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER | {"controller": False}]),
            'node "n1" can only create pods with a controller owner reference set to itself',
        ),
        (
            mirror(owners=[OWNER | {"blockOwnerDeletion": True}]),
            'node "n1" must not set blockOwnerDeletion on an owner reference',
        ),
        (
            mirror(owners=[OWNER | {"uid": "other"}]),
            f"node n1 UID mismatch: expected other got {UID}",
        ),
    ],
)
async def test_other_pods_a_node_may_not_create(made: Pod, why: str) -> None:
    assert await outcome(pod.RESOURCE, "CREATE", made) == why


@pytest.mark.parametrize(
    ("volume", "what"),
    [
        ({"configMap": {"name": "c"}}, "configmaps"),
        ({"secret": {"secretName": "s"}}, "secrets"),
        ({"persistentVolumeClaim": {"claimName": "c"}}, "persistentvolumeclaims"),
        ({"csi": {"driver": "d"}}, "csidrivers (via CSI volumes)"),
        ({"glusterfs": {"endpoints": "e", "path": "p"}}, "endpoints (via glusterFS volumes)"),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            "serviceaccounts (via projected volumes)",
        ),
    ],
)
async def test_a_mirror_pod_leads_to_nothing_a_node_could_not_read(
    volume: dict[str, Any], what: str
) -> None:
    made = mirror(volumes=[{"name": "v"} | volume])
    why = f'node "n1" can not create pods that reference {what}'
    assert await outcome(pod.RESOURCE, "CREATE", made) == why


OWN, FOREIGN = new_pod(spec={"nodeName": "n1"}), new_pod(spec={"nodeName": "n2"})


async def test_a_node_deletes_only_what_it_runs() -> None:
    assert await outcome(pod.RESOURCE, "DELETE", None, OWN) == ""
    assert await outcome(pod.RESOURCE, "DELETE", None, FOREIGN) == (
        'node "n1" can only delete pods with spec.nodeName set to itself'
    )


async def test_a_node_evicts_only_what_it_runs() -> None:
    restriction = await plugin(running("here", "n1"), running("there", "n2"))

    async def evicted(name: str) -> str:
        eviction = Document(metadata=ObjectMeta(name=name, namespace="default"))
        tried = attempt(pod.RESOURCE, "CREATE", eviction, user=NODE, subresource="eviction")
        try:
            await restriction.mutate(tried)
        except StatusError as refusal:
            return refusal.message
        return ""

    assert await evicted("here") == ""
    assert await evicted("there") == (
        'pods "there" is forbidden: node n1 can only evict pods with spec.nodeName set to itself'
    )
    assert await evicted("gone") == 'pods "gone" not found'


async def test_a_node_changes_nothing_of_a_pod_but_its_status() -> None:
    assert await outcome(pod.RESOURCE, "UPDATE", OWN, OWN) == (
        'unexpected operation "UPDATE", node "n1" can only create and delete mirror pods'
    )
    assert await outcome(pod.RESOURCE, "UPDATE", OWN, OWN, subresource="binding") == (
        "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed"
    )


async def test_a_node_reports_the_status_of_what_it_runs_and_nothing_more() -> None:
    async def reported(new: Pod, old: Pod) -> str:
        return await outcome(pod.RESOURCE, "UPDATE", new, old, subresource="status")

    running = replace(OWN, status=replace(OWN.status, phase="Running"))
    assert await reported(running, OWN) == ""
    assert await reported(FOREIGN, FOREIGN) == (
        'node "n1" can only update pod status for pods with spec.nodeName set to itself'
    )
    labelled = replace(OWN, metadata=replace(OWN.metadata, labels={"a": "b"}))
    assert await reported(labelled, OWN) == 'node "n1" cannot update labels through pod status'
    claim = pod.RESOURCE.from_document(
        {"status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "other"}]}}
    )
    claiming = replace(OWN, status=claim.status)
    assert await reported(claiming, OWN) == 'node "n1" cannot update resource claim statues'


# The node.


def itself(name: str = "n1", **spec: Any) -> Node:
    return node.RESOURCE.from_document({"metadata": {"name": name}, "spec": spec})


def labelled(**labels: str) -> Node:
    named = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return Node(metadata=ObjectMeta(name="n1", labels=named))


async def test_a_node_writes_only_its_own_node() -> None:
    for operation, new, old in (
        ("CREATE", itself("n2"), None),
        ("UPDATE", itself("n2"), itself("n2")),
        ("DELETE", None, itself("n2")),
    ):
        why = await outcome(node.RESOURCE, operation, new, old)  # type: ignore[arg-type]
        assert why == 'node "n1" is not allowed to modify node "n2"'
    assert await outcome(node.RESOURCE, "UPDATE", itself(), itself(), subresource="status") == ""


async def test_a_node_registers_with_taints_and_cannot_change_them_later() -> None:
    tainted = itself(taints=[{"key": "k", "effect": "NoSchedule"}])
    assert await outcome(node.RESOURCE, "CREATE", tainted) == ""
    assert await outcome(node.RESOURCE, "UPDATE", itself(), tainted) == (
        'node "n1" is not allowed to modify taints'
    )


async def test_a_node_cannot_choose_its_owner_or_its_configuration() -> None:
    owned = node.RESOURCE.from_document({"metadata": {"name": "n1", "ownerReferences": [OWNER]}})
    assert await outcome(node.RESOURCE, "UPDATE", owned, itself()) == (
        'node "n1" is not allowed to modify ownerReferences'
    )
    source = itself(configSource={"configMap": {"name": "c"}})
    assert await outcome(node.RESOURCE, "CREATE", source) == (
        'node "n1" is not allowed to create pods with a non-nil configSource'
    )
    assert await outcome(node.RESOURCE, "UPDATE", source, itself()) == (
        'node "n1" is not allowed to update configSource to a new non-nil configSource'
    )


@pytest.mark.parametrize(
    ("label", "allowed"),
    [
        ("plain", True),
        ("example_com__x", True),
        ("kubernetes_io__hostname", True),
        ("topology_kubernetes_io__zone", True),
        ("node_kubernetes_io__anything", True),
        ("sub_kubelet_kubernetes_io__anything", True),
        ("beta_kubernetes_io__os", True),
        ("kubernetes_io__anything", False),
        ("other_k8s_io__x", False),
        ("k8s_io__x", False),
        ("node-restriction_kubernetes_io__x", False),
        ("my_node-restriction_kubernetes_io__x", False),
        ("notkubernetes_io__x", True),
        ("simulation_kedge_dev__node", False),
        ("simulation_kedge_dev__other", True),
    ],
)
async def test_labels_that_could_draw_work_to_a_node_are_for_others(
    label: str, allowed: bool
) -> None:
    changed = labelled(**{label: "v"})
    (key,) = changed.metadata.labels
    assert await outcome(node.RESOURCE, "CREATE", changed) == (
        "" if allowed else f'node "n1" is not allowed to set the following labels: {key}'
    )
    why = "" if allowed else f"is not allowed to modify labels: {key}"
    assert await outcome(node.RESOURCE, "UPDATE", changed, itself()) == why
    assert await outcome(node.RESOURCE, "UPDATE", itself(), changed) == why
    assert await outcome(node.RESOURCE, "UPDATE", changed, changed) == ""


# Other kinds.


async def test_a_node_grows_claims_and_changes_nothing_else_of_them() -> None:
    resource = persistent_volume_claim.RESOURCE
    old = resource.from_document({"metadata": {"name": "c", "namespace": "default"}})
    grown = resource.from_document(
        {
            "metadata": {"name": "c", "namespace": "default", "resourceVersion": "9"},
            "status": {
                "capacity": {"storage": "2Gi"},
                "conditions": [{"type": "Resizing", "status": "True"}],
                "allocatedResources": {"storage": "2Gi"},
            },
        }
    )
    assert await outcome(resource, "UPDATE", grown, old, subresource="status") == ""
    assert await outcome(resource, "UPDATE", grown, old) == "may only update PVC status"
    lost = replace(old, status=replace(old.status, phase="Lost"))
    assert await outcome(resource, "UPDATE", lost, old, subresource="status") == (
        'node "n1" is not allowed to update fields other than status.quantity and status.conditions'
    )


def affine_volume(values: Any = ("n1",), **metadata: Any) -> Document:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(values)}
    spec = {
        "csi": {"driver": "local.kedge.dev", "volumeHandle": "pv"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    meta = {"finalizers": ["kedge.dev/local-volume"], **metadata}
    return Document(metadata=ObjectMeta(name="pv", **meta), content={"spec": spec})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (affine_volume(), affine_volume(annotations={LOCAL_DATA: "n1"}), ""),
        (
            affine_volume(),
            affine_volume(annotations={LOCAL_DATA: "n2"}),
            'node "n1" can only update volumes of its own that are being deleted',
        ),
        (
            affine_volume(annotations={LOCAL_DATA: "n2"}),
            affine_volume(annotations={LOCAL_DATA: "n1"}),
            'node "n1" can only update volumes of its own that are being deleted',
        ),
        (
            affine_volume(annotations={LOCAL_DATA: "n1"}),
            affine_volume(),
            'node "n1" can only update volumes of its own that are being deleted',
        ),
        (
            affine_volume(["n2"]),
            affine_volume(["n2"], annotations={LOCAL_DATA: "n1"}),
            'node "n1" can only update local volumes of its own',
        ),
        (
            affine_volume(deletionTimestamp="2026-01-01T00:00:00Z"),
            affine_volume(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=[]),
            "",
        ),
        (
            affine_volume(),
            affine_volume(finalizers=[]),
            'node "n1" can only update volumes of its own that are being deleted',
        ),
        (
            affine_volume(deletionTimestamp="2026-01-01T00:00:00Z"),
            affine_volume(["n1", "n2"], deletionTimestamp="2026-01-01T00:00:00Z", finalizers=[]),
            'node "n1" can only remove the finalizer "kedge.dev/local-volume" of a volume',
        ),
    ],
)
async def test_a_node_marks_and_releases_volumes_of_its_own(
    old: Document, new: Document, why: str
) -> None:
    assert await outcome(kind("", "persistentvolumes"), "UPDATE", new, old) == why


@pytest.mark.parametrize(
    ("namespace", "name", "why"),
    [
        ("kube-node-lease", "n1", ""),
        (
            "kube-node-lease",
            "n2",
            "can only access node lease with the same name as the requesting node",
        ),
        ("default", "n1", 'can only access leases in the "kube-node-lease" system namespace'),
    ],
)
async def test_a_node_renews_its_own_lease(namespace: str, name: str, why: str) -> None:
    resource = kind("coordination.k8s.io", "leases")
    lease = resource.from_document({"metadata": {"name": name, "namespace": namespace}})
    assert await outcome(resource, "CREATE", lease) == why
    assert await outcome(resource, "UPDATE", lease, lease) == why
    assert await outcome(resource, "DELETE", None, lease) == why


def document(name: str, **content: Any) -> Document:
    return Document(metadata=ObjectMeta(name=name), content=content)


def new_slice(node: str | None) -> ResourceSlice:
    return ResourceSlice(spec=ResourceSliceSpec(nodeName=node))


def local_volume(*finalizers: str, node: str = "n1", deleted: bool = True) -> Document:
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    spec = {
        "csi": {"driver": "local.kedge.dev", "volumeHandle": "pv"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [here]}]}},
    }
    when = "2030-01-01T00:00:00Z" if deleted else ""
    meta = ObjectMeta(name="pv", finalizers=finalizers, deletionTimestamp=when)
    return Document(metadata=meta, content={"spec": spec})


OWN_FINALIZER = "kedge.dev/local-volume"


@pytest.mark.parametrize(
    ("new", "old", "why"),
    [
        (local_volume("a"), local_volume("a", OWN_FINALIZER), ""),
        (local_volume(), local_volume(OWN_FINALIZER), ""),
        (local_volume(OWN_FINALIZER), local_volume("a", OWN_FINALIZER), "only remove"),
        (local_volume(node="n2"), local_volume(OWN_FINALIZER, node="n2"), "of its own"),
        (
            local_volume(deleted=False),
            local_volume(OWN_FINALIZER, deleted=False),
            "that are being deleted",
        ),
        (document("pv", spec={}), local_volume(OWN_FINALIZER), "only remove"),
    ],
)
async def test_a_node_removes_its_finalizer_of_its_own_volumes_and_changes_nothing_else(
    new: Document, old: Document, why: str
) -> None:
    said = await outcome(kind("", "persistentvolumes"), "UPDATE", new, old)
    assert why in said
    assert bool(why) == bool(said)


async def test_a_node_publishes_its_own_free_space() -> None:
    capacities = kind("storage.k8s.io", "csistoragecapacities")
    here = {"matchLabels": {"kubernetes.io/hostname": "n1"}}
    fields = {"storageClassName": "standard", "nodeTopology": here}
    own = document(capacity_name("n1", "standard"), **fields)
    assert await outcome(capacities, "CREATE", own) == ""
    assert await outcome(capacities, "DELETE", None, own) == ""
    other = document(capacity_name("n2", "standard"), **fields)
    assert "of itself" in await outcome(capacities, "CREATE", other)
    away = document(capacity_name("n1", "standard"), storageClassName="standard", nodeTopology={})
    assert "its own topology" in await outcome(capacities, "CREATE", away)


async def test_a_node_describes_its_own_drivers_and_devices() -> None:
    drivers = kind("storage.k8s.io", "csinodes")
    assert await outcome(drivers, "CREATE", document("n1")) == ""
    assert await outcome(drivers, "CREATE", document("n2")) == (
        "can only access CSINode with the same name as the requesting node"
    )
    slices = kind("resource.k8s.io", "resourceslices")
    assert await outcome(slices, "CREATE", new_slice("n1")) == ""
    assert await outcome(slices, "DELETE", None, new_slice("n1")) == ""
    assert await outcome(slices, "CREATE", new_slice(None)) == (
        "can only create ResourceSlice with the same NodeName as the requesting node"
    )
    assert await outcome(slices, "DELETE", None, new_slice("n2")) == (
        "can only delete ResourceSlice with the same NodeName as the requesting node"
    )


def certificate_request(name: str) -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    key = ec.generate_private_key(ec.SECP256R1())
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(csr.public_bytes(serialization.Encoding.PEM)).decode()


async def test_a_node_asks_for_certificates_in_its_own_name() -> None:
    resource = kind("certificates.k8s.io", "certificatesigningrequests")

    async def asked(signer: str, request: str) -> str:
        wanted = document("r", spec={"signerName": signer, "request": request})
        return await outcome(resource, "CREATE", wanted)

    client = "kubernetes.io/kube-apiserver-client-kubelet"
    assert await asked(client, certificate_request("system:node:n1")) == ""
    assert await asked(client, certificate_request("system:node:n2")) == (
        "can only create a node CSR with CN=system:node:n1"
    )
    assert "unable to parse csr" in await asked(client, "AAAA")
    assert await asked("example.com/other", certificate_request("anybody")) == ""


# Tokens.


def token_request(audiences: list[str] | None = None, **bound: str) -> Document:
    spec: dict[str, Any] = {"audiences": audiences or []}
    if bound:
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod"} | bound
    meta = ObjectMeta(name="default", namespace="default")
    return Document(metadata=meta, content={"spec": spec})


def running(name: str, where: str, *volumes: dict[str, Any]) -> dict[str, Any]:
    sources = [{"serviceAccountToken": {"path": "t"}}]
    own = {"name": "own", "projected": {"sources": sources}}
    spec = {"nodeName": where, "volumes": [own, *volumes]}
    return pod_document(metadata={"name": name, "uid": f"uid-{name}"}, spec=spec)


VAULT = {
    "name": "vault",
    "projected": {"sources": [{"serviceAccountToken": {"path": "v", "audience": "vault"}}]},
}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (token_request(name="here", uid="uid-here"), ""),
        (token_request(["vault"], name="here", uid="uid-here"), ""),
        (token_request(["granted"], name="here", uid="uid-here"), ""),
        (token_request(), "node requested token not bound to a pod"),
        (token_request(kind="Node", name="n1", uid="u"), "node requested token not bound to a pod"),
        (
            token_request(name="here"),
            "node requested token with a pod binding without a uid",
        ),
        (
            token_request(name="here", uid="old"),
            "the UID in the bound object reference (old) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        ),
        (
            token_request(name="there", uid="uid-there"),
            "node requested token bound to a pod scheduled on a different node",
        ),
        (
            token_request(["a", "b"], name="here", uid="uid-here"),
            "node may only request 0 or 1 audiences",
        ),
        (
            token_request(["bank"], name="here", uid="uid-here"),
            'audience "bank" not found in pod spec volume, system:node:n1 is not authorized to '
            "request tokens for this audience",
        ),
    ],
)
async def test_a_node_gets_tokens_only_for_the_pods_it_runs(wanted: Document, why: str) -> None:
    restriction = await plugin(
        running("here", "n1", VAULT), running("there", "n2"), allowed="granted"
    )
    got = await outcome(
        service_account.RESOURCE,
        "CREATE",
        wanted,
        subresource="token",
        restriction=restriction,
    )
    assert got == why


async def test_a_token_for_a_pod_that_does_not_exist_is_not_found() -> None:
    wanted = token_request(name="gone", uid="u")
    tried = attempt(service_account.RESOURCE, "CREATE", wanted, user=NODE, subresource="token")
    with pytest.raises(StatusError) as error:
        await (await plugin()).mutate(tried)
    assert (error.value.code, error.value.message) == (404, 'pods "gone" not found')


# Who is meant.


async def test_whoever_is_no_node_is_not_restricted() -> None:
    outsiders = (SOMEBODY, User("system:node:n1"), User("other", ("system:nodes",)))
    for user in outsiders:
        assert await outcome(pod.RESOURCE, "CREATE", new_pod(), user=user) == ""


async def test_a_node_without_a_name_may_nothing() -> None:
    nameless = User("system:node:", ("system:nodes",))
    assert await outcome(pod.RESOURCE, "CREATE", new_pod(), user=nameless) == (
        'could not determine node from user "system:node:"'
    )
