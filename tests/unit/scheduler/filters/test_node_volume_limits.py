"""ReadWriteOncePod, zones and limits of volumes."""

from typing import Any

from msgspec.structs import replace

from kedge.api.core_v1.claim import PersistentVolumeClaimSpec
from kedge.api.core_v1.persistent_volume_claim import (
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
)
from kedge.api.model import ObjectMeta
from kedge.api.storage_v1.csi import CsiNode, CsiNodeDriver, CsiNodeSpec, VolumeNodeResources
from kedge.api.storage_v1.persistent_volume import (
    BIND_COMPLETED,
    CsiVolume,
    PersistentVolume,
    PersistentVolumeSpec,
)
from kedge.scheduler.cycle import CycleState, FitError, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node


def mounting(name: str, claim: str, **fields: Any) -> PodDemand:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    return demand(name, volumes=[volume], **fields)


def put(snapshot: Snapshot, claim: str, mode: str = "ReadWriteOnce", **labels: str) -> None:
    """Add a claim that is bound to a volume of its own."""
    meta = ObjectMeta(name=claim, namespace="default", annotations={BIND_COMPLETED: "yes"})
    spec = PersistentVolumeClaimSpec(volumeName=f"pv-{claim}", accessModes=[mode])
    status = PersistentVolumeClaimStatus(phase="Bound")
    snapshot.storage.claims.put(PersistentVolumeClaim(metadata=meta, spec=spec, status=status))
    csi = CsiVolume(driver="d", volumeHandle=claim)
    volume = PersistentVolume(
        metadata=ObjectMeta(name=f"pv-{claim}", labels={**labels}),
        spec=PersistentVolumeSpec(csi=csi),
    )
    snapshot.storage.volumes.put(volume)


def why_not(pod: PodDemand, snapshot: Snapshot) -> str:
    decision = decide(pod, snapshot, CycleState())
    return decision.message if isinstance(decision, FitError) else ""


def test_a_claim_for_one_pod_is_not_given_to_a_second() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    put(snapshot, "data", "ReadWriteOncePod")
    assert why_not(mounting("second", "data"), snapshot) == ""
    snapshot.place(mounting("first", "data"), "a")
    reason = (
        "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    )
    assert why_not(mounting("second", "data"), snapshot) == f"0/2 nodes are available: {reason}."


def test_a_volume_of_a_zone_needs_a_node_of_the_zone() -> None:
    zone = "topology.kubernetes.io/zone"
    here = new_node("a")
    labels = {**here.metadata.labels, zone: "z1"}
    here = replace(here, metadata=replace(here.metadata, labels=labels))
    snapshot = cluster(here)
    put(snapshot, "near", **{zone: "z0__z1"})
    put(snapshot, "far", **{zone: "z2"})
    assert why_not(mounting("p", "near"), snapshot) == ""
    reason = "1 node(s) had no available volume zone"
    assert why_not(mounting("p", "far"), snapshot) == f"0/1 nodes are available: {reason}."


def test_a_node_has_no_more_volumes_than_its_driver_can_attach() -> None:
    snapshot = cluster(new_node("a"))
    for name in ("one", "two"):
        put(snapshot, name)
    limit = VolumeNodeResources(count=1)
    driver = CsiNodeDriver(name="d", allocatable=limit)
    spec = CsiNodeSpec(drivers=[driver])
    snapshot.storage.nodes.put(CsiNode(metadata=ObjectMeta(name="a"), spec=spec))
    snapshot.place(mounting("first", "one"), "a")
    assert why_not(mounting("second", "one"), snapshot) == ""
    reason = "1 node(s) exceed max volume count"
    assert why_not(mounting("second", "two"), snapshot) == f"0/1 nodes are available: {reason}."
