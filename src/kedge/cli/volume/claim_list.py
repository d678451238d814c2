"""`kedge volume list`: each claim with its volume, its nodes and its pods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kedge.api.core_v1 import node as node_kind
from kedge.api.core_v1 import persistent_volume_claim
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import STORAGE_CLASS, PersistentVolumeClaim
from kedge.api.core_v1.pod import pod as pod_kind
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.claims import claims_of
from kedge.api.storage_v1 import persistent_volume
from kedge.api.storage_v1.persistent_volume import VOLUMES, PersistentVolume, reachable_from
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import printers
from kedge.client.view import View

_HEADS: Final = (
    *("NAMESPACE", "CLAIM", "VOLUME", "NODE", "CAPACITY", "CLASS", "PHASE", "USED BY"),
)
_NONE: Final = "<none>"
_MOST_NAMES: Final = 3
"""Names in one cell of the table."""
_ENDED: Final = ("Succeeded", "Failed")

ClaimKey = tuple[str, str]
"""Namespace and name of a claim."""


class ClusterVolumes(NamedTuple):
    """The objects that decide where storage is and who uses it."""

    claims: Sequence[PersistentVolumeClaim]
    volumes: Sequence[PersistentVolume]
    pods: Sequence[Pod]
    nodes: Sequence[Node]


class VolumeLine(NamedTuple):
    """A claim and its volume, or one of both without the other."""

    namespace: str
    claim: str
    volume: str
    nodes: Sequence[str]
    """The nodes that can mount the volume."""
    is_bound_to_nodes: bool
    """Whether the volume says which nodes can mount it."""
    capacity: str
    storage_class: str
    phase: str
    pods: Sequence[str]


async def show(there: ApiSession, namespace: str, output: str | None) -> int:
    """Print claims and volumes, of all namespaces unless one is given."""
    found = lines(await _read(there, namespace), namespace)
    if output:
        print(printers.document({"items": [facts(line) for line in found]}, output))
    elif found:
        print(printers.table([_HEADS, *map(cells, found)]))
    else:
        where = f" in namespace {namespace}" if namespace else ""
        print(f"There are no claims and no volumes{where}.")
    return 0


async def _read(there: ApiSession, namespace: str) -> ClusterVolumes:
    client = there.client
    return ClusterVolumes(
        claims=(await client.list(persistent_volume_claim.RESOURCE, namespace)).items,
        volumes=(await client.list_as(View(VOLUMES, persistent_volume.decode))).items,
        pods=(await client.list(pod_kind.RESOURCE, namespace)).items,
        nodes=(await client.list(node_kind.RESOURCE)).items,
    )


def lines(found: ClusterVolumes, namespace: str = "") -> list[VolumeLine]:
    """Return a line for each claim, then one for each volume whose claim does not exist."""
    users, volumes = _users(found.pods), {each.metadata.name: each for each in found.volumes}
    claims = sorted(found.claims, key=_key)
    bound = {(_key(each), each.spec.volumeName) for each in claims}
    return [
        *(
            _of_claim(each, volumes.get(each.spec.volumeName or ""), found, users)
            for each in claims
        ),
        *(
            _of_volume(volumes[name], found.nodes)
            for name in sorted(volumes)
            if (_claim_key(volumes[name]), name) not in bound
            and namespace in ("", _claim_key(volumes[name])[0])
        ),
    ]


def _key(claim: PersistentVolumeClaim) -> ClaimKey:
    return claim.metadata.namespace, claim.metadata.name


def _claim_key(volume: PersistentVolume) -> ClaimKey:
    """Return the claim that the volume is for; empty if it is for any."""
    claim = volume.spec.claimRef
    return (claim.namespace, claim.name) if claim is not None else ("", "")


def _users(pods: Iterable[Pod]) -> Mapping[ClaimKey, Sequence[str]]:
    """Return the pods that use each claim, without those that have ended."""
    users: dict[ClaimKey, list[str]] = {}
    for pod in pods:
        if pod.status.phase not in _ENDED:
            for claim in {each.name for each in claims_of(pod)}:
                users.setdefault((pod.metadata.namespace, claim), []).append(pod.metadata.name)
    return {claim: sorted(names) for claim, names in users.items()}


def _of_claim(
    claim: PersistentVolumeClaim,
    volume: PersistentVolume | None,
    found: ClusterVolumes,
    users: Mapping[ClaimKey, Sequence[str]],
) -> VolumeLine:
    capacity = claim.status.capacity.get("storage")
    annotated = claim.metadata.annotations.get(STORAGE_CLASS)
    return VolumeLine(
        *_key(claim),
        volume=claim.spec.volumeName or "",
        nodes=_nodes(volume, found.nodes),
        is_bound_to_nodes=_is_bound_to_nodes(volume),
        capacity=str(capacity) if capacity is not None else "",
        storage_class=annotated if annotated is not None else claim.spec.storageClassName or "",
        phase=_phase(claim),
        pods=users.get(_key(claim), ()),
    )


def _of_volume(volume: PersistentVolume, nodes: Iterable[Node]) -> VolumeLine:
    return VolumeLine(
        *_claim_key(volume),
        volume=volume.metadata.name,
        nodes=_nodes(volume, nodes),
        is_bound_to_nodes=_is_bound_to_nodes(volume),
        capacity=str(volume.size),
        storage_class=volume.storage_class,
        phase=_phase(volume),
        pods=(),
    )


def _phase(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    return "Terminating" if obj.metadata.deletionTimestamp else obj.status.phase


def _nodes(volume: PersistentVolume | None, nodes: Iterable[Node]) -> Sequence[str]:
    if volume is None:
        return ()
    matches = reachable_from(volume)
    found = (each.metadata for each in nodes)
    return sorted(each.name for each in found if matches(each.name, each.labels))


def _is_bound_to_nodes(volume: PersistentVolume | None) -> bool:
    affinity = volume.spec.nodeAffinity if volume is not None else None
    return volume is None or (affinity is not None and affinity.required is not None)


def facts(line: VolumeLine) -> dict[str, object]:
    """Return a line as JSON and YAML output show it."""
    return {
        "namespace": line.namespace,
        "claim": line.claim,
        "volume": line.volume,
        "nodes": list(line.nodes),
        "capacity": line.capacity,
        "storageClass": line.storage_class,
        "phase": line.phase,
        "pods": list(line.pods),
    }


def cells(line: VolumeLine) -> tuple[str, ...]:
    """Return the cells of a line in the table."""
    return (
        *(each or _NONE for each in (line.namespace, line.claim, line.volume)),
        _names(line.nodes) if line.is_bound_to_nodes else "<any>",
        *(each or _NONE for each in (line.capacity, line.storage_class, line.phase)),
        _names(line.pods),
    )


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = ",".join(names[:_MOST_NAMES])
    return (f"{shown} + {more} more..." if more > 0 else shown) or _NONE
