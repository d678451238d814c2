from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.claim import PersistentVolumeClaimSpec, VolumeResourceRequirements
from kedge.api.core_v1.persistent_volume_claim import (
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
)
from kedge.api.core_v1.pod.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kedge.api.model import LabelSelector, ObjectMeta, OwnerReference
from kedge.api.storage_v1.binding import best_volume_for_node
from kedge.api.storage_v1.csi import CsiStorageCapacity
from kedge.api.storage_v1.persistent_volume import (
    BIND_COMPLETED,
    PersistentVolume,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    VolumeClaimReference,
    VolumeNodeAffinity,
)
from kedge.api.storage_v1.storage_class import StorageClass
from kedge.machinery.quantity import Quantity
from kedge.scheduler.cycle import CycleState, FitError, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.volume_binding import volume_plan
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node

SIZE = {"storage": Quantity.of("1Gi")}


def mounting(claim: str = "data") -> PodDemand:
    return demand(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


def claim(
    name: str = "data", *, phase: str = "Bound", volume: str = "pv", class_: str = "", **meta: Any
) -> PersistentVolumeClaim:
    annotations = dict(meta.pop("annotations", {}))
    if phase != "Pending":
        annotations[BIND_COMPLETED] = "yes"
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default", annotations=annotations, **meta),
        spec=PersistentVolumeClaimSpec(
            volumeName=volume,
            storageClassName=class_,
            accessModes=["ReadWriteOnce"],
            resources=VolumeResourceRequirements(requests=SIZE),
        ),
        status=PersistentVolumeClaimStatus(phase=phase),
    )


def waiting(name: str = "data", class_: str = "late", **meta: Any) -> PersistentVolumeClaim:
    return claim(name, phase="Pending", volume="", class_=class_, **meta)


def late(name: str = "late", **fields: Any) -> StorageClass:
    meta = ObjectMeta(name=name)
    return StorageClass(metadata=meta, volumeBindingMode="WaitForFirstConsumer", **fields)


def on(node: str) -> VolumeNodeAffinity:
    here = NodeSelectorRequirement(key="kubernetes.io/hostname", operator="In", values=[node])
    term = NodeSelectorTerm(matchExpressions=[here])
    return VolumeNodeAffinity(required=NodeSelector(nodeSelectorTerms=[term]))


def existing(name: str, size: str = "1Gi", node: str = "a") -> PersistentVolume:
    return PersistentVolume(
        metadata=ObjectMeta(name=name),
        spec=PersistentVolumeSpec(
            capacity={"storage": Quantity.of(size)},
            accessModes=["ReadWriteOnce"],
            storageClassName="late",
            nodeAffinity=on(node),
        ),
        status=PersistentVolumeStatus(phase="Available"),
    )


def why_not(pod: PodDemand, snapshot: Snapshot) -> str:
    decision = decide(pod, snapshot, CycleState())
    return decision.message if isinstance(decision, FitError) else ""


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (None, 'persistentvolumeclaim "data" not found'),
        (
            claim(phase="Lost"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
        ),
        (
            claim(deletionTimestamp="2030-01-01T00:00:00Z"),
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            claim(phase="Pending", volume=""),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            claim(phase="Pending", volume="", class_="late"),
            "1 node(s) didn't find available persistent volumes to bind",
        ),
        (
            claim(),
            "1 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
    ],
)
def test_what_is_wrong_with_a_claim_is_said(
    known: PersistentVolumeClaim | None, message: str
) -> None:
    snapshot = cluster(new_node("n"))
    snapshot.storage.classes.put(late())
    if known is not None:
        snapshot.storage.claims.put(known)
    assert why_not(mounting(), snapshot) == f"0/1 nodes are available: {message}."


def test_a_bound_claim_leads_to_the_nodes_that_reach_its_volume() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    spec = PersistentVolumeSpec(nodeAffinity=on("b"))
    snapshot.storage.claims.put(claim())
    snapshot.storage.volumes.put(PersistentVolume(metadata=ObjectMeta(name="pv"), spec=spec))
    assert why_not(mounting(), snapshot) == ""
    snapshot.remove_node("b")
    reason = "1 node(s) didn't match PersistentVolume's node affinity"
    assert why_not(mounting(), snapshot) == f"0/1 nodes are available: {reason}."


def test_a_claim_made_for_a_pod_must_be_its_own() -> None:
    snapshot = cluster(new_node("n"))
    pod = demand("web", volumes=[{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}}])
    waiting = (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "web-tmp"'
    )
    assert why_not(pod, snapshot) == f"0/1 nodes are available: {waiting}."
    snapshot.storage.claims.put(claim("web-tmp"))
    foreign = "PVC default/web-tmp was not created for pod default/web (pod is not owner)"
    assert why_not(pod, snapshot) == f"0/1 nodes are available: {foreign}."
    owner = OwnerReference(kind="Pod", name="web", uid=pod.uid, controller=True)
    snapshot.storage.claims.put(claim("web-tmp", ownerReferences=[owner]))
    snapshot.storage.volumes.put(PersistentVolume(metadata=ObjectMeta(name="pv")))
    assert why_not(pod, snapshot) == ""


def plan_on(snapshot: Snapshot, node: str, *claims: PersistentVolumeClaim) -> object:
    plan = volume_plan(claims, snapshot.nodes[node], snapshot.storage)
    if isinstance(plan, str):
        return plan
    volumes = {key.name: each.metadata.name for key, each in plan.volumes.items()}
    return volumes, [each.metadata.name for each in plan.provisions]


def test_a_waiting_claim_gets_the_smallest_volume_of_the_node() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    snapshot.storage.classes.put(late(provisioner="kubernetes.io/no-provisioner"))
    for volume in (existing("big", "3Gi"), existing("fits", "2Gi"), existing("away", node="b")):
        snapshot.storage.volumes.put(volume)
    assert plan_on(snapshot, "a", waiting()) == ({"data": "fits"}, [])
    assert plan_on(snapshot, "b", waiting()) == ({"data": "away"}, [])
    both = plan_on(snapshot, "a", waiting(), waiting("logs"))
    assert both == ({"data": "fits", "logs": "big"}, [])
    reason = "node(s) didn't find available persistent volumes to bind"
    assert plan_on(snapshot, "b", waiting(), waiting("logs")) == reason


def test_a_promised_volume_is_not_given_to_another_claim() -> None:
    snapshot = cluster(new_node("a"))
    snapshot.storage.classes.put(late())
    snapshot.storage.volumes.put(existing("pv"))
    plan = volume_plan([waiting()], snapshot.nodes["a"], snapshot.storage)
    assert not isinstance(plan, str)
    snapshot.storage.promise(plan, "a")
    reason = "node(s) didn't find available persistent volumes to bind"
    assert plan_on(snapshot, "a", waiting("logs")) == reason
    snapshot.storage.release(plan)
    assert plan_on(snapshot, "a", waiting("logs")) == ({"logs": "pv"}, [])


def test_a_volume_is_made_where_there_is_space_and_the_class_allows_it() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    snapshot.storage.classes.put(late(provisioner="kedge.dev/local"))
    assert plan_on(snapshot, "a", waiting()) == ({}, ["data"])
    here = LabelSelector(matchLabels={"kubernetes.io/hostname": "a"})
    full = CsiStorageCapacity(
        metadata=ObjectMeta(name="c", namespace="kube-system"),
        storageClassName="late",
        nodeTopology=here,
        capacity=Quantity.of("1Mi"),
    )
    snapshot.storage.capacities.put(full)
    assert plan_on(snapshot, "a", waiting()) == "node(s) did not have enough free storage"
    assert plan_on(snapshot, "b", waiting()) == ({}, ["data"])


def test_a_claim_whose_volume_is_being_made_stays_with_its_node() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    snapshot.storage.classes.put(late(provisioner="kedge.dev/local"))
    known = waiting(annotations={"volume.kubernetes.io/selected-node": "b"})
    reason = "node(s) didn't find available persistent volumes to bind"
    assert plan_on(snapshot, "a", known) == reason
    assert plan_on(snapshot, "b", known) == ({}, ["data"])


def test_volumes_of_other_claims_are_not_compared_with_the_node() -> None:
    other = VolumeClaimReference(namespace="default", name="other", uid="u")
    taken = existing("taken")
    taken = replace(taken, spec=replace(taken.spec, claimRef=other))
    compared: list[str] = []

    def reachable(volume: PersistentVolume) -> bool:
        compared.append(volume.metadata.name)
        return True

    found = best_volume_for_node(waiting(), [taken, existing("free")], reachable, ())
    assert found == existing("free")
    assert compared == ["free"]
