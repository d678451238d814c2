"""EphemeralVolumeController: makes the claims of a pod's `ephemeral` volumes."""

from typing import Final

from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.claims import ephemeral_name, foreign_claim, is_made_for
from kedge.api.core_v1.volume.volume import Volume
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.client.client import Client
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, Unfinished, together
from kedge.controllers.shared_informers import SharedInformers, controller_of, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "ephemeral_volume"
WORKERS: Final = 5


class EphemeralVolumeController:
    """Looks at a pod when it is new, and when a claim that was made for it is gone."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._pods = shared.of(PODS)
        self._claims = shared.of(CLAIMS)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[Key] = ControllerLoop(
            "ephemeral-volume", self._reconcile, clock, workers=WORKERS
        )
        self._pods.follow(self._pod_changed)
        self._claims.follow(self._claim_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        if before is not None or now is None or now.metadata.deletionTimestamp:
            return
        if any(volume.ephemeral is not None for volume in now.spec.volumes):
            self._loop.add(key_of(now))

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None
    ) -> None:
        owner = controller_of(before) if before is not None and now is None else None
        if before is not None and owner is not None and owner.kind == "Pod":
            self._loop.add(Key(before.metadata.namespace, owner.name))

    async def _reconcile(self, key: Key) -> None:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or pod.metadata.deletionTimestamp:
            return
        for volume in pod.spec.volumes:
            if volume.ephemeral is not None:
                await self._ensure(pod, volume)

    async def _ensure(self, pod: Pod, volume: Volume) -> None:
        name, namespace = ephemeral_name(pod, volume.name), pod.metadata.namespace
        known = self._claims.get(name, namespace)
        if known is None:
            claim = claim_for(pod, volume)
            try:
                made = await self._client.create(CLAIMS, claim)
            except StatusError as error:
                message = f"ephemeral volume {volume.name}: create PVC {name}: {error}"
                self._recorder.record(pod, WARNING, "FailedBinding", message)
                raise
            await self._claims.written(made)
        elif not is_made_for(known, pod):
            why = foreign_claim(known, pod)
            message = f"ephemeral volume {volume.name}: {why}"
            self._recorder.record(pod, WARNING, "FailedBinding", message)
            raise Unfinished(why)


def claim_for(pod: Pod, volume: Volume) -> PersistentVolumeClaim:
    """Return the claim of an ephemeral volume, as it is posted."""
    assert volume.ephemeral is not None
    assert volume.ephemeral.volumeClaimTemplate is not None
    template, meta = volume.ephemeral.volumeClaimTemplate, pod.metadata
    owner = OwnerReference(
        apiVersion="v1",
        kind="Pod",
        name=meta.name,
        uid=meta.uid,
        controller=True,
        blockOwnerDeletion=True,
    )
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=ephemeral_name(pod, volume.name),
            namespace=meta.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            ownerReferences=[owner],
        ),
        spec=template.spec,
    )
