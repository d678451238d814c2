"""VolumeBinding: the claims of a pod must exist, and be bound or bindable on the node."""

from collections.abc import Sequence
from typing import Final

from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.claims import PodClaim, claims_of, foreign_claim, is_made_for
from kedge.api.storage_v1.binding import best_volume_for_node, class_of, is_fully_bound, size_of
from kedge.api.storage_v1.capacity import free_bytes
from kedge.api.storage_v1.local_volumes import LOCAL_PROVISIONER
from kedge.api.storage_v1.persistent_volume import PersistentVolume, reachable_from
from kedge.api.storage_v1.storage_class import NO_PROVISIONER
from kedge.client.informer import Key
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import Check, NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.storage import Storage, VolumePlan

UNBOUND: Final = NodeRejection(("pod has unbound immediate PersistentVolumeClaims",), final=True)
NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
WRONG_NODE: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    claims: list[PersistentVolumeClaim] = []
    for each in claims_of(demand.pod):
        claim = snapshot.storage.claims.get(each.name, demand.namespace)
        if trouble := _trouble(demand.pod, each, claim):
            return NodeRejection((trouble,), final=True)
        assert claim is not None
        claims.append(claim)
    if not claims:
        return None
    unbound = [claim for claim in claims if not is_fully_bound(claim)]
    if not all(snapshot.storage.waits(claim) for claim in unbound):
        return UNBOUND
    return _check(claims, snapshot.storage)


def _trouble(pod: Pod, asked: PodClaim, claim: PersistentVolumeClaim | None) -> str:
    name = asked.name
    if claim is None and asked.is_ephemeral:
        what = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
        return f'{what} "{name}"'
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == "Lost":
        volume = claim.spec.volumeName
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if claim.metadata.deletionTimestamp:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if asked.is_ephemeral and not is_made_for(claim, pod):
        return foreign_claim(claim, pod)
    return ""


def _check(claims: Sequence[PersistentVolumeClaim], storage: Storage) -> Check:
    bound = [each for each in claims if is_fully_bound(each)]
    volumes = [storage.volumes.get(each.spec.volumeName) for each in bound]
    gone = [VOLUME_GONE] if None in volumes else []
    matches = [reachable_from(volume) for volume in volumes if volume is not None]

    def check(node: NodeState) -> NodeRejection | None:
        found: list[str] = []
        if not all(match(node.name, node.labels) for match in matches):
            found.append(WRONG_NODE)
        plan = volume_plan(claims, node, storage)
        if isinstance(plan, str):
            found.append(plan)
        found += gone
        return NodeRejection(tuple(found), final=True) if found else None

    return check


def volume_plan(
    claims: Sequence[PersistentVolumeClaim], node: NodeState, storage: Storage
) -> VolumePlan | str:
    """Return the volumes that unbound claims get on a node, or why one gets none.

    The claim with the smallest request chooses first, so that large volumes are left for large
    claims.
    """
    chosen: dict[Key, PersistentVolume] = {}
    provisions: list[PersistentVolumeClaim] = []
    unbound = {
        (each.metadata.namespace, each.metadata.name): each
        for each in claims
        if not is_fully_bound(each)
    }
    for key, claim in sorted(unbound.items(), key=lambda each: size_of(each[1])):
        selected = storage.selected_node(claim)
        if selected and selected != node.name:
            return NO_VOLUME
        volume = None if selected else _existing(claim, node, storage, chosen)
        if volume is not None:
            chosen[Key(*key)] = volume
        elif refusal := _cannot_provision(claim, node, storage):
            return refusal
        else:
            provisions.append(claim)
    return VolumePlan(chosen, tuple(provisions))


def _existing(
    claim: PersistentVolumeClaim,
    node: NodeState,
    storage: Storage,
    chosen: dict[Key, PersistentVolume],
) -> PersistentVolume | None:
    name = class_of(claim)
    of_class = (each for each in storage.volumes if each.storage_class == name)
    taken = {each.metadata.name for each in chosen.values()}.union(storage.taken_from(claim))

    def reachable(volume: PersistentVolume) -> bool:
        return reachable_from(volume)(node.name, node.labels)

    return best_volume_for_node(claim, of_class, reachable, taken)


def _cannot_provision(claim: PersistentVolumeClaim, node: NodeState, storage: Storage) -> str:
    """Return why no volume can be made for a claim on a node; empty if one can."""
    storage_class = storage.class_for(claim)
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return NO_VOLUME
    if not storage_class.allows(node.labels):
        return NO_VOLUME
    driver = storage.drivers.get(storage_class.provisioner)
    is_measured = storage_class.provisioner == LOCAL_PROVISIONER
    if not is_measured and (driver is None or not driver.spec.storageCapacity):
        return ""
    free = free_bytes(storage_class, node.labels, storage.capacities)
    return "" if free >= size_of(claim).value() else NO_SPACE
