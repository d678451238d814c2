"""ClaimProtectionController: a claim that a pod uses stays until the pod is gone."""

from collections.abc import Iterable, Sequence
from typing import Final

from kedge.api.core_v1.persistent_volume_claim import (
    RESOURCE,
    PersistentVolumeClaim,
)
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.claims import claims_of, is_made_for
from kedge.client.client import Client
from kedge.client.informer import Key
from kedge.client.view import objects
from kedge.controllers.loop import ControllerLoop
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.controllers.volumes.claim_users import ClaimUsers
from kedge.controllers.volumes.finalizer import with_finalizer, without_finalizer
from kedge.machinery.clock import Clock

PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"
WORKERS: Final = 4


class ClaimProtectionController:
    """Adds the finalizer to claims, and removes it from deleted ones that no pod uses."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._claims = shared.of(RESOURCE)
        self._users = ClaimUsers(shared.of(PODS))
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "pvc-protection", self._reconcile, clock, workers=WORKERS
        )
        self._claims.follow(self._claim_changed)
        self._users.listen(self._users_changed)

    async def run(self) -> None:
        await self._loop.run()

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None
    ) -> None:
        if now is not None:
            self._loop.add(key_of(now))

    def _users_changed(self, claim: Key) -> None:
        known = self._claims.get(claim.name, claim.namespace)
        if known is not None and known.metadata.deletionTimestamp:
            self._loop.add(claim)

    async def _reconcile(self, key: Key) -> None:
        claim = self._claims.get(key.name, key.namespace)
        if claim is None:
            return
        if (finalizers := with_finalizer(claim, PVC_PROTECTION)) is not None:
            await self._write(claim, finalizers)
            return
        left = without_finalizer(claim, PVC_PROTECTION)
        if left is None or is_used(claim, self._users.of(key)):
            return
        if not await self._is_used_now(claim):
            await self._write(claim, left)

    async def _is_used_now(self, claim: PersistentVolumeClaim) -> bool:
        """Whether a pod that the cache does not have yet uses a claim."""
        listing = await self._client.list_encoded(objects(PODS), claim.metadata.namespace)
        return is_used(claim, pods_naming(claim, listing.items))

    async def _write(self, claim: PersistentVolumeClaim, finalizers: Sequence[str]) -> None:
        meta = claim.metadata
        known = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
        patch = {"metadata": {**known, "finalizers": list(finalizers) or None}}
        await self._client.patch(RESOURCE, meta.name, patch, meta.namespace)


def is_used(claim: PersistentVolumeClaim, pods: Sequence[Pod]) -> bool:
    """Whether one of the pods that name a claim may still write to its volume.

    A pod without a node does not count: the scheduler refuses it while the claim is being deleted.
    A finished pod counts, because its volumes may not be unmounted yet.
    """
    return any(pod.spec.nodeName and _uses(pod, claim) for pod in pods)


def _uses(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    name = claim.metadata.name
    for each in claims_of(pod):
        if each.name != name:
            continue
        if not each.is_ephemeral or (is_made_for(claim, pod) and not _is_shut_down(pod)):
            return True
    return False


def _is_shut_down(pod: Pod) -> bool:
    """Whether the node is done with a deleted pod, or its deletion was forced.

    Such a pod may wait for the end of its own claim (foreground deletion). The claim must not wait
    for the pod then.
    """
    meta = pod.metadata
    return meta.deletionTimestamp is not None and meta.deletionGracePeriodSeconds == 0


def pods_naming(claim: PersistentVolumeClaim, encoded: Iterable[bytes]) -> list[Pod]:
    """Return the pods that may use a claim. Only pods whose text has the name of the claim, or of
    its owner, are decoded: a namespace may have thousands."""
    meta = claim.metadata
    texts = [name.encode() for name in (meta.name, *(each.name for each in meta.ownerReferences))]
    # Raw, which the client returns, is a buffer and has no `in`.
    found = (bytes(each) for each in encoded)
    return [PODS.decode(pod) for pod in found if any(text in pod for text in texts)]
