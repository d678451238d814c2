"""PersistentVolumeClaim: its volume, the nodes of the volume, its pods and what it waits for."""

from collections.abc import Iterator, Sequence

from kedge.api.core_v1.persistent_volume_claim import ACCESS_MODES, STORAGE_CLASS
from kedge.cli.descriptions import parts
from kedge.cli.descriptions.claim_state import claim_names, claim_state
from kedge.cli.descriptions.parts import NONE, Fields, RelatedObjects, fact


def describe(claim: Fields, about: RelatedObjects) -> str:
    return parts.text(_lines(claim, about))


def _lines(claim: Fields, about: RelatedObjects) -> Iterator[str]:
    metadata, spec, status = (claim.get(name) or {} for name in ("metadata", "spec", "status"))
    state = claim_state(claim, about.volume, about.events or ())
    annotations = metadata.get("annotations") or {}
    yield fact("Name", metadata["name"])
    yield fact("Namespace", metadata["namespace"])
    yield fact("StorageClass", annotations.get(STORAGE_CLASS, spec.get("storageClassName", "")))
    yield fact("Status", state.phase)
    yield fact("Volume", state.volume)
    yield fact("Nodes", state.nodes)
    if state.waits_for:
        yield fact("Waits For", state.waits_for)
    yield from parts.labels("Labels", metadata.get("labels"))
    yield from parts.annotations(annotations)
    yield fact("Finalizers", f"[{' '.join(metadata.get('finalizers') or ())}]")
    yield fact("Requested", _storage((spec.get("resources") or {}).get("requests")))
    yield fact("Capacity", _storage(status.get("capacity")))
    modes = status.get("accessModes") or spec.get("accessModes") or ()
    yield fact("Access Modes", ",".join(ACCESS_MODES.get(each, each) for each in modes))
    yield fact("VolumeMode", spec.get("volumeMode", ""))
    if source := spec.get("dataSource"):
        yield fact("DataSource", f"{source.get('kind', '')}/{source.get('name', '')}")
    yield from parts.several("Used By", _users(metadata["name"], about.pods or ()))
    yield from _conditions(status.get("conditions") or ())
    yield from parts.events(about)


def _storage(amounts: Fields | None) -> str:
    return str((amounts or {}).get("storage", NONE))


def _users(claim: str, pods: Sequence[Fields]) -> Iterator[str]:
    for pod in pods:
        if any(name == claim for _, name in claim_names(pod)):
            node = (pod.get("spec") or {}).get("nodeName") or NONE
            yield f"{pod['metadata']['name']} on {node}"


def _conditions(conditions: Sequence[Fields]) -> Iterator[str]:
    if conditions:
        yield "Conditions:"
        yield "  Type\tStatus\tMessage"
    for each in conditions:
        yield f"  {each['type']}\t{each['status']}\t{parts.shown(each.get('message', ''))}"
