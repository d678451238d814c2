"""ClaimBinding: the scheduler's writes to volumes and claims, before a pod is bound."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.storage_v1.binding import SELECTED_NODE, is_fully_bound, reference_to
from kedge.api.storage_v1.persistent_volume import (
    BOUND_BY_CONTROLLER,
    VOLUMES,
    PersistentVolume,
    reachable_from,
)
from kedge.client.client import Client
from kedge.client.informer import Key
from kedge.machinery.clock import Clock
from kedge.scheduler.node_state import NodeState
from kedge.scheduler.storage import Storage, VolumePlan

BIND_SECONDS: Final = 600.0
"""How long a pod waits for its claims to be bound."""


class VolumeBindingFailed(Exception):
    """The claims of a pod cannot be bound on the chosen node."""


class ClaimBinding:
    """Writes volume plans, and waits until the controller has bound the claims."""

    def __init__(self, client: Client, storage: Storage, clock: Clock) -> None:
        self._client = client
        self._storage = storage
        self._clock = clock
        self._changed = asyncio.Event()
        for cache in (storage.claims, storage.volumes):
            cache.listen(self._wake)

    def _wake(self, _: Key) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def write(self, plan: VolumePlan, node: str) -> Mapping[Key, int]:
        """Bind existing volumes to claims, and ask for the others.

        Returns the version of each claim that asks for a volume on the node.
        """
        for key, volume in plan.volumes.items():
            await self._point(volume, key)
        return {_key(claim): await self._select(claim, node) for claim in plan.provisions}

    async def _point(self, volume: PersistentVolume, key: Key) -> None:
        claim = self._storage.claims.get(key.name, key.namespace)
        if claim is None:
            raise VolumeBindingFailed(f'persistentvolumeclaim "{key.name}" not found')
        reference = volume.spec.claimRef
        if reference is not None and reference.uid == claim.metadata.uid:
            return
        meta = volume.metadata
        known: dict[str, object] = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
        if reference is None:
            known["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        patch = {"metadata": known, "spec": {"claimRef": reference_to(claim)}}
        await self._client.patch(VOLUMES, meta.name, patch)

    async def _select(self, claim: PersistentVolumeClaim, node: str) -> int:
        meta = claim.metadata
        if meta.annotations.get(SELECTED_NODE) == node:
            return _version(claim)
        patch = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resourceVersion,
                "annotations": {SELECTED_NODE: node},
            }
        }
        return _version(await self._client.patch(CLAIMS, meta.name, patch, meta.namespace))

    async def bound(self, plan: VolumePlan, node: NodeState, asked: Mapping[Key, int]) -> str:
        """Return when all claims of a plan are bound, or why they will not be. `asked` is the
        result of `write`."""
        async with asyncio.TaskGroup() as tasks:
            deadline = self._clock.monotonic() + BIND_SECONDS
            timer = tasks.create_task(self._wake_later(BIND_SECONDS))
            keys = [*plan.volumes, *(_key(each) for each in plan.provisions)]
            found = await self._follow(keys, node, deadline, asked)
            timer.cancel()
        return found

    async def _wake_later(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._wake(Key("", ""))

    async def _follow(
        self, keys: Sequence[Key], node: NodeState, deadline: float, asked: Mapping[Key, int]
    ) -> str:
        while True:
            changed = self._changed
            states = [self._state(key, node, asked.get(key)) for key in keys]
            if failure := next((each for each in states if each), ""):
                return failure
            if None not in states:
                return ""
            if self._clock.monotonic() >= deadline:
                return "binding volumes: context deadline exceeded"
            await changed.wait()

    def _state(self, key: Key, node: NodeState, asked: int | None) -> str | None:
        """Return why a claim will not be bound, empty if it is, None as long as it is not.

        A provisioner that fails removes the wish for the node. The removal may arrive together
        with the wish, so the version of the wish decides, not whether it was ever seen.
        """
        claim = self._storage.claims.get(key.name, key.namespace)
        if claim is None:
            return f'persistentvolumeclaim "{key.name}" not found'
        if is_fully_bound(claim):
            return self._wrong_node(claim, node)
        is_withdrawn = SELECTED_NODE not in claim.metadata.annotations
        if asked is not None and is_withdrawn and _version(claim) >= asked:
            return f'binding volumes: provisioning failed for PVC "{key.name}"'
        return None

    def _wrong_node(self, claim: PersistentVolumeClaim, node: NodeState) -> str:
        volume = self._storage.volumes.get(claim.spec.volumeName)
        if volume is None or reachable_from(volume)(node.name, node.labels):
            return ""
        name = volume.metadata.name
        return f'binding volumes: pv "{name}" node affinity doesn\'t match node "{node.name}"'


def _key(claim: PersistentVolumeClaim) -> Key:
    return Key(claim.metadata.namespace, claim.metadata.name)


def _version(claim: PersistentVolumeClaim) -> int:
    return int(claim.metadata.resourceVersion)
