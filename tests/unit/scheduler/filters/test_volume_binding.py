from typing import Any

import pytest

from kedge.api.core_v1.pod.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kedge.api.model import OwnerReference
from kedge.scheduler.cycle import CycleState, FitError, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.storage import (
    ClaimSpec,
    ClaimStatus,
    PartialClaim,
    PersistentVolume,
    StorageClass,
    StorageMeta,
    VolumeNodeAffinity,
    VolumeSpec,
)
from kedge.testing.scheduling import cluster, demand, new_node


def mounting(claim: str = "data") -> PodDemand:
    return demand(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


def claim(
    name: str = "data", *, phase: str = "Bound", volume: str = "pv", class_: str = "", **meta: Any
) -> PartialClaim:
    return PartialClaim(
        metadata=StorageMeta(name=name, namespace="default", **meta),
        spec=ClaimSpec(volume_name=volume, storage_class_name=class_),
        status=ClaimStatus(phase=phase),
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
            claim(deletion_timestamp="2030-01-01T00:00:00Z"),
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
def test_what_is_wrong_with_a_claim_is_said(known: PartialClaim | None, message: str) -> None:
    snapshot = cluster(new_node("n"))
    late = StorageClass(
        metadata=StorageMeta(name="late"), volume_binding_mode="WaitForFirstConsumer"
    )
    snapshot.storage.classes.put(late)
    if known is not None:
        snapshot.storage.claims.put(known)
    assert why_not(mounting(), snapshot) == f"0/1 nodes are available: {message}."


def test_a_bound_claim_leads_to_the_nodes_that_reach_its_volume() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    here = NodeSelectorRequirement(key="kubernetes.io/hostname", operator="In", values=["b"])
    selector = NodeSelector(nodeSelectorTerms=[NodeSelectorTerm(matchExpressions=[here])])
    spec = VolumeSpec(node_affinity=VolumeNodeAffinity(required=selector))
    snapshot.storage.claims.put(claim())
    snapshot.storage.volumes.put(PersistentVolume(metadata=StorageMeta(name="pv"), spec=spec))
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
    snapshot.storage.claims.put(claim("web-tmp", owner_references=(owner,)))
    snapshot.storage.volumes.put(PersistentVolume(metadata=StorageMeta(name="pv")))
    assert why_not(pod, snapshot) == ""
