"""`kedge volume snapshot`, `restore` and `snapshots`: claims that begin as copies of others."""

import sys
from typing import Any, Final

from kedge.api.core_v1 import event
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1.local_volumes import SNAPSHOT_OF
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import printers
from kedge.machinery.clock import Clock, SystemClock
from kedge.machinery.errors import StatusError

_PAUSE_SECONDS: Final = 0.5
_HEADS: Final = ("NAME", "CLAIM", "PHASE", "CAPACITY", "CREATED")


async def take(there: ApiSession, claim: str, name: str, seconds: float) -> int:
    """Copy a claim, and wait until the copy has its data."""
    clock = SystemClock()
    name = name or f"{claim}-{clock.now():%Y%m%d-%H%M%S}"
    made = await _copy(there, claim, name, {SNAPSHOT_OF: claim})
    await _wait(there, made, clock, seconds)
    print(f"snapshot {name} of claim {claim} created")
    return 0


async def restore(there: ApiSession, snapshot: str, claim: str, seconds: float) -> int:
    """Make a new claim with the content of a snapshot. An existing claim is never changed."""
    made = await _copy(there, snapshot, claim, {})
    await _wait(there, made, SystemClock(), seconds)
    print(f"claim {claim} created from {snapshot}")
    return 0


async def show(there: ApiSession) -> int:
    """Print the snapshots of a namespace."""
    found = (await there.client.list(CLAIMS, there.namespace, labels=SNAPSHOT_OF)).items
    if not found:
        print(f"There are no snapshots in namespace {there.namespace}.")
        return 0
    print(printers.table([_HEADS, *map(cells, found)]))
    return 0


def cells(claim: PersistentVolumeClaim) -> tuple[str, ...]:
    """Return the cells of a snapshot in the table."""
    meta, status = claim.metadata, claim.status
    capacity = status.capacity.get("storage")
    size = str(capacity) if capacity is not None else "<unknown>"
    return meta.name, meta.labels[SNAPSHOT_OF], status.phase, size, meta.creationTimestamp


def copy_of(source: PersistentVolumeClaim, name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return a claim that begins with the content of another."""
    spec, capacity = source.spec, source.status.capacity.get("storage")
    if capacity is None:
        raise Failure(f"claim {source.metadata.name} is not bound: it has no data")
    return {
        "metadata": {
            "name": name,
            "namespace": source.metadata.namespace,
            "labels": labels,
        },
        "spec": {
            "accessModes": list(spec.accessModes),
            "storageClassName": spec.storageClassName,
            "volumeMode": spec.volumeMode,
            "resources": {"requests": {"storage": str(capacity)}},
            "dataSource": {"kind": "PersistentVolumeClaim", "name": source.metadata.name},
        },
    }


async def _copy(
    there: ApiSession, source: str, name: str, labels: dict[str, str]
) -> PersistentVolumeClaim:
    origin = await there.client.get(CLAIMS, source, there.namespace)
    wanted = CLAIMS.from_document(copy_of(origin, name, labels))
    try:
        return await there.client.create(CLAIMS, wanted)
    except StatusError as error:
        if error.reason == "AlreadyExists":
            raise Failure(
                f"claim {name} exists, and its data are never overwritten: choose another name, or"
                " delete it first"
            ) from error
        raise


async def _wait(
    there: ApiSession, claim: PersistentVolumeClaim, clock: Clock, seconds: float
) -> None:
    """Print what happens until the copy is made. Raises a Failure if that takes too long."""
    deadline, told = clock.monotonic() + seconds, set[str]()
    while True:
        for reason, message in await _events(there, claim):
            if reason == "VolumeCopied":
                return
            if reason in ("VolumeNotCopied", "ProvisioningFailed") and message not in told:
                told.add(message)
                print(f"waiting: {message}", file=sys.stderr)
        if clock.monotonic() > deadline:
            name = claim.metadata.name
            raise Failure(
                f"claim {name} was not copied within {seconds:g} s: 'kubectl describe pvc {name}'"
                f" shows why, 'kubectl delete pvc {name}' gives up; the copy continues otherwise"
            )
        await clock.sleep(_PAUSE_SECONDS)


async def _events(there: ApiSession, claim: PersistentVolumeClaim) -> list[tuple[str, str]]:
    where = f"involvedObject.uid={claim.metadata.uid}"
    found = await there.client.list(event.RESOURCE, claim.metadata.namespace, fields=where)
    return [(each.reason, each.message) for each in found.items]
