"""Print descriptions of objects, with their events."""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from kedge.api.coordination_v1.lease import RESOURCE as LEASE
from kedge.api.core_v1.event import RESOURCE as EVENT
from kedge.api.core_v1.pod.pod import RESOURCE as POD
from kedge.api.resource import Resource
from kedge.cli.descriptions.claim_state import claim_lines
from kedge.cli.descriptions.kinds import describe
from kedge.cli.descriptions.parts import RelatedObjects
from kedge.cli.objects.claim_states import bound_volume, claim_states
from kedge.cli.objects.complaints import complaint
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.targets import ObjectTarget
from kedge.machinery.errors import StatusError

_LEASES = "kube-node-lease"


class DescribeOptions(NamedTuple):
    """The objects to describe, and how."""

    words: Sequence[str]
    everywhere: bool = False
    labels: str = ""
    wide: bool = False
    events: bool = True


async def show(connection: ApiSession, asked: DescribeOptions, now: datetime) -> int:
    """Print the descriptions; 1 if something that was named is not there."""
    texts: list[str] = []
    complaints: list[str] = []
    found = await connection.targets(asked.words)
    for target in found:
        try:
            for document in await _documents(connection, asked, target):
                about = await _about(connection, asked, document, now)
                texts.append(describe(document, about))
        except StatusError as error:
            complaints.append(complaint(error))
    if texts:
        print("\n\n\n".join(texts))
    elif not complaints:
        print(connection.nothing(found, everywhere=asked.everywhere), file=sys.stderr)
    for said in complaints:
        print(said, file=sys.stderr)
    return 1 if complaints else 0


async def _documents(
    connection: ApiSession, asked: DescribeOptions, target: ObjectTarget
) -> list[dict[str, Any]]:
    """The object of that name, else those whose names begin so; without a name, all."""
    resource = target.resource
    namespace = "" if asked.everywhere else connection.within(resource)
    if not target.name:
        return await connection.list(resource, namespace, {"labelSelector": asked.labels})
    try:
        return [await connection.get(resource, target.name, namespace)]
    except StatusError as error:
        if error.code != 404:
            raise
        listed = await connection.list(resource, namespace)
        begun = [each for each in listed if each["metadata"]["name"].startswith(target.name)]
        if not begun:
            raise
        return begun


async def _about(
    connection: ApiSession, asked: DescribeOptions, document: dict[str, Any], now: datetime
) -> RelatedObjects:
    metadata = document["metadata"]
    about = RelatedObjects(
        now=now,
        wide=asked.wide,
        events=await _events(connection, document) if asked.events else None,
    )
    match document["apiVersion"], document["kind"]:
        case "v1", "Node":
            pods = await _pods(connection, metadata["name"])
            lease = await _or_none(connection, LEASE, metadata["name"], _LEASES)
            return replace(about, pods=pods, lease=lease)
        case "v1", "Pod":
            states = await claim_states(connection, document)
            lines = {name: list(claim_lines(state)) for name, state in states.items()}
            return replace(about, claims=lines)
        case "v1", "PersistentVolumeClaim":
            pods = await _or_nothing(connection, POD, metadata["namespace"])
            return replace(about, pods=pods, volume=await bound_volume(connection, document))
    return about


async def _events(connection: ApiSession, document: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the events of this object; None if they may not be read."""
    metadata = document["metadata"]
    selected = {
        "involvedObject.kind": document["kind"],
        "involvedObject.name": metadata["name"],
    }
    query = {"fieldSelector": ",".join(f"{key}={value}" for key, value in selected.items())}
    try:
        events = await connection.list(EVENT, metadata.get("namespace", ""), query)
    except StatusError:
        return None
    # Nodes tell of themselves under their names, before they know their uids.
    own = ("", metadata.get("uid", ""), metadata["name"])
    return [each for each in events if each["involvedObject"].get("uid", "") in own]


async def _pods(connection: ApiSession, node: str) -> list[dict[str, Any]] | None:
    """Those that the node runs or is about to run; None if they may not be seen."""
    selected = f"spec.nodeName={node},status.phase!=Failed,status.phase!=Succeeded"
    try:
        return await connection.list(POD, "", {"fieldSelector": selected})
    except StatusError:
        return None


async def _or_nothing(
    connection: ApiSession, resource: Resource[Any], namespace: str
) -> list[dict[str, Any]] | None:
    try:
        return await connection.list(resource, namespace)
    except StatusError:
        return None


async def _or_none(
    connection: ApiSession, resource: Resource[Any], name: str, namespace: str
) -> dict[str, Any] | None:
    try:
        return await connection.get(resource, name, namespace)
    except StatusError:
        return None
