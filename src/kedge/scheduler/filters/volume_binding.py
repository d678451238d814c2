"""VolumeBinding: the claims of a pod must exist, be bound, and be reachable from the node."""

from collections.abc import Iterator

from kedge.api.core_v1.node_selection import Match, compiled
from kedge.api.core_v1.pod.pod import Pod
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.filters.filter import Check, NodeRejection, Prepared
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.storage import PartialClaim, PersistentVolume, Storage

UNBOUND = NodeRejection(("pod has unbound immediate PersistentVolumeClaims",), final=True)
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
WRONG_NODE = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def prepare(demand: PodDemand, snapshot: Snapshot) -> Prepared:
    claims: list[PartialClaim] = []
    for name, made_for_pod in _claim_names(demand.pod):
        claim = snapshot.storage.claims.get(name, demand.namespace)
        if trouble := _trouble(demand.pod, name, claim, made_for_pod=made_for_pod):
            return NodeRejection((trouble,), final=True)
        assert claim is not None
        claims.append(claim)
    if not claims:
        return None
    unbound = [claim for claim in claims if not claim.bound]
    if not all(snapshot.storage.waits(claim) for claim in unbound):
        return UNBOUND
    return _check(claims, snapshot.storage)


def _claim_names(pod: Pod) -> Iterator[tuple[str, bool]]:
    """The claims that a pod mounts, and whether each was made for it."""
    for volume in pod.spec.volumes:
        if volume.persistentVolumeClaim is not None:
            yield volume.persistentVolumeClaim.claimName, False
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", True


def _trouble(pod: Pod, name: str, claim: PartialClaim | None, *, made_for_pod: bool) -> str:
    if claim is None and made_for_pod:
        what = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
        return f'{what} "{name}"'
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == "Lost":
        volume = claim.spec.volume_name
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if claim.metadata.deletion_timestamp:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if made_for_pod and not _belongs(claim, pod):
        where = f"{claim.metadata.namespace}/{name}"
        own = f"{pod.metadata.namespace}/{pod.metadata.name}"
        return f"PVC {where} was not created for pod {own} (pod is not owner)"
    return ""


def _belongs(claim: PartialClaim, pod: Pod) -> bool:
    owners = claim.metadata.owner_references
    return any(owner.uid == pod.metadata.uid and owner.controller for owner in owners)


def _check(claims: list[PartialClaim], storage: Storage) -> Check:
    reasons: list[str] = []
    if not all(claim.bound for claim in claims):
        # Nothing here makes volumes for claims that wait for their pod.
        reasons.append(NO_VOLUME)
    volumes = [storage.volumes.get(claim.spec.volume_name) for claim in claims if claim.bound]
    if None in volumes:
        reasons.append(VOLUME_GONE)
    matches = [_reach(volume) for volume in volumes if volume is not None]

    def check(node: NodeState) -> NodeRejection | None:
        found = list(reasons)
        if not all(match(node.name, node.labels) for match in matches):
            found.insert(0, WRONG_NODE)
        return NodeRejection(tuple(found), final=True) if found else None

    return check


def _reach(volume: PersistentVolume) -> Match:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return lambda name, labels: True
    terms = [compiled(term) for term in affinity.required.nodeSelectorTerms]
    return lambda name, labels: any(term is not None and term(name, labels) for term in terms)
