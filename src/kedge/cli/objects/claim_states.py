"""Read the claims of a pod, with their volumes and events, as far as the caller may."""

from typing import Any

from kedge.api.core_v1.event import RESOURCE as EVENT
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIM
from kedge.api.resource import Resource
from kedge.api.storage_v1.persistent_volume import VOLUMES
from kedge.cli.descriptions.claim_state import ClaimState, claim_names, claim_state, missing
from kedge.cli.objects.connection import ApiSession
from kedge.machinery.errors import StatusError

_DENIED = (403, 404)


async def claim_states(connection: ApiSession, pod: dict[str, Any]) -> dict[str, ClaimState]:
    """Return the state of each claim of a pod, by volume. Claims that may not be read are left
    out."""
    named = list(claim_names(pod))
    if not named:
        return {}
    namespace = pod["metadata"]["namespace"]
    about_pod = await _events(connection, namespace, "Pod", pod["metadata"]["name"])
    found = {}
    for volume, name in named:
        state = await _state(connection, namespace, name, about_pod, volume)
        if state is not None:
            found[volume] = state
    return found


async def bound_volume(connection: ApiSession, claim: dict[str, Any]) -> dict[str, Any] | None:
    """Return the volume of a claim; None if it has none, or it may not be read."""
    name = claim["spec"].get("volumeName")
    return await _permitted(connection, VOLUMES, name, "") if name else None


async def _state(
    connection: ApiSession,
    namespace: str,
    name: str,
    about_pod: list[dict[str, Any]],
    volume: str,
) -> ClaimState | None:
    try:
        claim = await connection.get(CLAIM, name, namespace)
    except StatusError as error:
        if error.code not in _DENIED:
            raise
        return missing(name) if error.code == 404 else None
    events = await _events(connection, namespace, "PersistentVolumeClaim", name)
    own = [each for each in events if each["involvedObject"].get("uid") == claim["metadata"]["uid"]]
    return claim_state(claim, await bound_volume(connection, claim), own, about_pod, volume)


async def _events(
    connection: ApiSession, namespace: str, kind: str, name: str
) -> list[dict[str, Any]]:
    query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"}
    try:
        return await connection.list(EVENT, namespace, query)
    except StatusError as error:
        if error.code not in _DENIED:
            raise
        return []


async def _permitted(
    connection: ApiSession, resource: Resource[Any], name: str, namespace: str
) -> dict[str, Any] | None:
    try:
        return await connection.get(resource, name, namespace)
    except StatusError as error:
        if error.code not in _DENIED:
            raise
        return None
