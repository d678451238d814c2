"""PersistentVolumeBinder: binds claims to volumes, makes volumes, and reclaims released ones."""

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any, Final, NamedTuple

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import (
    PENDING,
    PersistentVolumeClaim,
)
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.storage_v1 import csi, persistent_volume, storage_class
from kedge.api.storage_v1.binding import (
    SELECTED_NODE,
    class_of,
    has_no_class,
    is_fully_bound,
    reference_to,
    size_of,
)
from kedge.api.storage_v1.local_sources import source_claim
from kedge.api.storage_v1.local_volumes import LOCAL_FINALIZER, LOCAL_PROVISIONER, VOLUME_NODE
from kedge.api.storage_v1.persistent_volume import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    VOLUMES,
    PersistentVolume,
    reachable_from,
)
from kedge.api.storage_v1.storage_class import CLASSES, StorageClass
from kedge.client.client import Client, DeletionOptions, DeletionPreconditions
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, Unfinished, together
from kedge.controllers.shared_informers import SharedInformers, key_of
from kedge.controllers.volumes.claim_steps import (
    AssignClass,
    AwaitProvisioner,
    BindClaim,
    LeavePending,
    LoseClaim,
    ProvisionVolume,
    StorageEvent,
    claim_step,
    external_provisioning,
)
from kedge.controllers.volumes.claim_users import ClaimUsers
from kedge.controllers.volumes.known_storage import CachedStorage
from kedge.controllers.volumes.provisioned_volume import (
    chosen_node,
    copy_refusal,
    missing_label,
    provisioned_volume,
    refusal,
    volume_name,
)
from kedge.controllers.volumes.volume_steps import (
    BOUND,
    FAILED,
    Reclaim,
    VolumeAction,
    reclaim,
    volume_step,
)
from kedge.controllers.volumes.volume_writes import VolumeWrites
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "persistentvolume-controller"
WORKERS: Final = 16
PROVISION_SECONDS: Final = 15.0
"""Time between two attempts to make a volume, as long as Kubernetes' controller waits."""
PROVISIONERS: Final = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
"""The annotations of a claim that tell a provisioner to make its volume."""


class StorageTask(NamedTuple):
    """A claim or a volume to look at."""

    plural: str
    key: Key


class PersistentVolumeBinder:
    """Looks at claims and volumes that change, and at waiting claims when a class changes."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._volumes = shared.viewed(VOLUMES, persistent_volume.decode)
        self._classes = shared.viewed(CLASSES, storage_class.decode)
        self._capacities = shared.viewed(csi.CAPACITIES, csi.decode_capacity)
        self._claims = shared.of(CLAIMS)
        self._nodes = shared.of(node.RESOURCE)
        self._unbound = self._claims.by(_unbound_class)
        self._named = self._claims.by(_volume_key)
        self._leaving = self._volumes.by(_left_to_node)
        users = ClaimUsers(shared.of(PODS))
        self._known = CachedStorage(self._volumes, self._classes, users)
        self._writes = VolumeWrites(client, clock, self._volumes, self._claims)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[StorageTask] = ControllerLoop(
            "persistentvolume-binder", self._reconcile, clock, workers=WORKERS
        )
        self._claims.follow(self._claim_changed)
        self._volumes.follow(self._volume_changed)
        self._classes.follow(self._class_changed)
        self._nodes.follow(self._node_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: the claims and volumes to look at.

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None
    ) -> None:
        if now is not None:
            self._add_claim(key_of(now))
        for name in {each.spec.volumeName for each in (before, now) if each is not None}:
            if name and (before is None or now is None or before.spec != now.spec):
                self._add_volume(name)
        if now is None and before is not None:
            for volume in self._known.candidates(before):
                if volume.spec.claimRef is not None:
                    self._add_volume(volume.metadata.name)

    def _volume_changed(
        self, before: PersistentVolume | None, now: PersistentVolume | None
    ) -> None:
        volume = now or before
        if volume is None:
            return
        self._add_volume(volume.metadata.name)
        for claim in self._named.get(volume.metadata.name):
            self._add_claim(key_of(claim))
        if now is None:
            return
        reference = now.spec.claimRef
        if reference is not None:
            self._add_claim(Key(reference.namespace, reference.name))
        elif before is None or before.spec != now.spec or before.status != now.status:
            for claim in self._unbound.get(now.storage_class):
                self._add_claim(key_of(claim))

    def _class_changed(self, before: StorageClass | None, now: StorageClass | None) -> None:
        if now is not None:
            for name in (now.metadata.name, ""):
                for claim in self._unbound.get(name):
                    self._add_claim(key_of(claim))

    def _node_changed(self, before: Node | None, now: Node | None) -> None:
        if now is None:
            for volume in self._leaving.get(True):
                self._add_volume(volume.metadata.name)

    def _add_claim(self, key: Key) -> None:
        self._loop.add(StorageTask(CLAIMS.plural, key))

    def _add_volume(self, name: str) -> None:
        self._loop.add(StorageTask(VOLUMES.plural, Key("", name)))

    async def _reconcile(self, task: StorageTask) -> None:
        if task.plural == CLAIMS.plural:
            claim = self._claims.get(task.key.name, task.key.namespace)
            if claim is not None:
                await self._reconcile_claim(claim)
        else:
            volume = self._volumes.get(task.key.name)
            if volume is not None:
                await self._reconcile_volume(volume)

    # Claims.

    async def _reconcile_claim(self, claim: PersistentVolumeClaim) -> None:
        if claim.metadata.deletionTimestamp and BIND_COMPLETED not in claim.metadata.annotations:
            return
        match claim_step(claim, self._known):
            case BindClaim(volume):
                await self._bind(claim, volume)
            case LeavePending(event):
                self._tell(claim, event)
                await self._set_claim_phase(claim, PENDING)
            case LoseClaim(event):
                if claim.status.phase != "Lost":
                    self._tell(claim, event)
                    await self._lose(claim)
            case AssignClass(name):
                patch = {"spec": {"storageClassName": name}}
                await self._writes.known(claim=await self._writes.patch_claim(claim, patch))
            case ProvisionVolume(storage_class, node):
                await self._provision(claim, storage_class, node)
            case AwaitProvisioner(provisioner):
                await self._await_provisioner(claim, provisioner)

    def _tell(self, about: PersistentVolumeClaim, event: StorageEvent | None) -> None:
        if event is not None:
            self._recorder.record(about, *event)

    async def _set_claim_phase(self, claim: PersistentVolumeClaim, phase: str) -> None:
        if claim.status.phase != phase:
            patch = {"status": {"phase": phase}}
            await self._writes.known(claim=await self._writes.patch_claim(claim, patch, "status"))

    async def _lose(self, claim: PersistentVolumeClaim) -> None:
        status = {"phase": "Lost", "capacity": None, "accessModes": None}
        patch = {"status": status}
        await self._writes.known(claim=await self._writes.patch_claim(claim, patch, "status"))

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Write both pointers, each with its phase; a bind that stopped anywhere is completed."""
        name, promised = volume.metadata.name, self._known.promised
        if promised.setdefault(name, claim.metadata.uid) != claim.metadata.uid:
            raise Unfinished(f"volume {name} is being bound to another claim")
        try:
            volume = await self._point_to_claim(volume, claim)
            # Together: the volume names its claim already, so either may be missing after a crash.
            # The phase of the claim comes last: a client that sees it finds all the rest.
            volume, claim = await _both(
                self._writes.set_phase(volume, BOUND), self._point_to_volume(claim, volume)
            )
            claim = await self._complete(claim, volume)
            await self._writes.known(volume, claim)
        except BaseException:
            # A claim that went in the meantime leaves the volume to be released.
            self._add_volume(name)
            raise
        finally:
            del promised[name]

    async def _point_to_claim(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim
    ) -> PersistentVolume:
        reference = volume.spec.claimRef
        if reference is not None and reference.uid == claim.metadata.uid:
            return volume
        patch: dict[str, Any] = {"spec": {"claimRef": reference_to(claim)}}
        if reference is None:
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        return await self._writes.patch_volume(volume, patch)

    async def _point_to_volume(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume
    ) -> PersistentVolumeClaim:
        name, annotations = volume.metadata.name, claim.metadata.annotations
        if claim.spec.volumeName == name and BIND_COMPLETED in annotations:
            return claim
        marks = {BIND_COMPLETED: "yes"}
        patch: dict[str, Any] = {"metadata": {"annotations": marks}}
        if claim.spec.volumeName != name:
            marks[BOUND_BY_CONTROLLER] = "yes"
            patch["spec"] = {"volumeName": name}
        return await self._writes.patch_claim(claim, patch)

    async def _complete(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume
    ) -> PersistentVolumeClaim:
        """Set the status of a bound claim; its capacity is the node's to change afterwards."""
        if claim.status.phase == BOUND:
            return claim
        status: dict[str, Any] = {
            "phase": BOUND,
            "accessModes": list(volume.spec.accessModes),
            "capacity": {name: str(size) for name, size in volume.spec.capacity.items()},
        }
        if volume.spec.volumeAttributesClassName:
            attributes = volume.spec.volumeAttributesClassName
            status["currentVolumeAttributesClassName"] = attributes
        return await self._writes.patch_claim(claim, {"status": status}, "status")

    # Provisioning.

    async def _await_provisioner(self, claim: PersistentVolumeClaim, provisioner: str) -> None:
        wanted: dict[str, str | None] = dict.fromkeys(PROVISIONERS, provisioner)
        if any(claim.metadata.annotations.get(key) != provisioner for key in PROVISIONERS):
            claim = await self._writes.annotate_claim(claim, wanted)
            await self._writes.known(claim=claim)
        self._tell(claim, external_provisioning(provisioner))
        await self._set_claim_phase(claim, PENDING)

    async def _provision(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, selected: str
    ) -> None:
        name = storage_class.metadata.name
        source = self._source(claim)
        node = self._node_for(claim, storage_class, selected)
        why = refusal(claim) or (node if isinstance(node, str) else "")
        if why or isinstance(node, str):
            message = f'Failed to provision volume with StorageClass "{name}": {why}'
            self._tell(claim, StorageEvent(WARNING, "ProvisioningFailed", message))
            if selected:
                # The scheduler looks for another node.
                written = await self._writes.annotate_claim(claim, {SELECTED_NODE: None})
                await self._writes.known(claim=written)
            else:
                # No event tells of space or nodes that appear later.
                task = StorageTask(CLAIMS.plural, key_of(claim))
                self._loop.add_later(task, PROVISION_SECONDS)
            return
        try:
            handle = source.spec.csi.volumeHandle if source and source.spec.csi else ""
            made = provisioned_volume(claim, storage_class, node, handle)
            volume = await self._writes.create(made)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            # An earlier attempt was interrupted, and its volume is not in the cache yet.
            raise Unfinished(f"volume {volume_name(claim)} exists") from error
        text = f"Successfully provisioned volume {volume.metadata.name} using {LOCAL_PROVISIONER}"
        self._tell(claim, StorageEvent(NORMAL, "ProvisioningSucceeded", text))
        await self._bind(claim, volume)

    def _node_for(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, selected: str
    ) -> Node | str:
        """Return the node of a new volume, or why there is none."""
        if source_claim(claim):
            return self._node_of_copy(claim, storage_class)
        known = self._nodes.get(selected) if selected else None
        if selected and known is None:
            return f'node "{selected}" not found'
        nodes = [known] if known is not None else [*self._nodes]
        found = chosen_node(storage_class, nodes, self._capacities, size_of(claim).value())
        if found is not None:
            return found
        where = f'node "{selected}" has not' if selected else "no node has"
        return f"{where} enough free storage"

    def _source(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the volume that the volume of a claim begins as a copy of."""
        name = source_claim(claim)
        found = self._claims.get(name, claim.metadata.namespace) if name else None
        if found is None or not is_fully_bound(found):
            return None
        return self._volumes.get(found.spec.volumeName)

    def _node_of_copy(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass
    ) -> Node | str:
        """Return the node that has the source of a copy, or why there is none."""
        source = self._source(claim)
        if (why := copy_refusal(claim, source)) or source is None:
            return why
        is_near = reachable_from(source)
        nodes = [each for each in self._nodes if is_near(each.metadata.name, each.metadata.labels)]
        found = chosen_node(storage_class, nodes, self._capacities, size_of(claim).value())
        return found or "the node of the source has not enough free storage"

    # Volumes.

    async def _reconcile_volume(self, volume: PersistentVolume) -> None:
        if volume.metadata.name in self._known.promised:
            # A claim is being bound to it; the last write of that brings it here again.
            return
        if label := missing_label(volume, self._nodes):
            patch = {"metadata": {"labels": {VOLUME_NODE: label}}}
            await self._writes.known(await self._writes.patch_volume(volume, patch))
            return
        if volume.metadata.deletionTimestamp and self._is_left(volume):
            await self._writes.remove_finalizer(volume, LOCAL_FINALIZER)
            return
        step = volume_step(volume, await self._claim_of(volume))
        if step.phase:
            volume = await self._writes.set_phase(volume, step.phase)
            await self._writes.known(volume)
        match step.action:
            case VolumeAction.LOOK_AT_CLAIM:
                self._look_at_claim(volume)
            case VolumeAction.REPORT_MODE:
                self._report_mode(volume)
            case VolumeAction.UNBIND:
                await self._unbind(volume)
            case VolumeAction.RECLAIM:
                await self._reclaim(volume)
            case VolumeAction.NONE:
                pass

    async def _claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """Return the claim that a volume names; one that the cache lacks is read from the API."""
        reference = volume.spec.claimRef
        if reference is None or not reference.uid:
            return None
        claim = self._claims.get(reference.name, reference.namespace)
        if claim is not None and claim.metadata.uid == reference.uid:
            return claim
        try:
            return await self._client.get(CLAIMS, reference.name, reference.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    def _look_at_claim(self, volume: PersistentVolume) -> None:
        reference = volume.spec.claimRef
        if reference is not None:
            self._add_claim(Key(reference.namespace, reference.name))

    def _report_mode(self, volume: PersistentVolume) -> None:
        reference = volume.spec.claimRef
        claim = self._claims.get(reference.name, reference.namespace) if reference else None
        if claim is None:
            return
        why = "due to incompatible volumeMode."
        text = "Cannot bind PersistentVolume to requested PersistentVolumeClaim"
        message = f'{text} "{claim.metadata.name}" {why}'
        self._recorder.record(volume, WARNING, "VolumeMismatch", message)
        name = volume.metadata.name
        message = f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim {why}'
        self._recorder.record(claim, WARNING, "VolumeMismatch", message)

    async def _unbind(self, volume: PersistentVolume) -> None:
        """Free a volume for other claims, or leave it to its claim if a person chose that."""
        if BOUND_BY_CONTROLLER in volume.metadata.annotations:
            gone = {"annotations": {BOUND_BY_CONTROLLER: None}}
            patch: dict[str, Any] = {"metadata": gone, "spec": {"claimRef": None}}
        else:
            patch = {"spec": {"claimRef": {"uid": None}}}
        volume = await self._writes.patch_volume(volume, patch)
        await self._writes.known(await self._writes.set_phase(volume, "Available"))

    async def _reclaim(self, volume: PersistentVolume) -> None:
        decision = reclaim(volume)
        if decision.reclaim is Reclaim.DELETE_OBJECT and not volume.metadata.deletionTimestamp:
            # The version too: the policy may have changed to Retain a moment ago.
            meta = volume.metadata
            known = DeletionPreconditions(uid=meta.uid, resource_version=meta.resourceVersion)
            only = DeletionOptions(preconditions=known)
            await self._client.delete(VOLUMES, meta.name, options=only)
        elif decision.reclaim is Reclaim.FAIL:
            if volume.status.phase != FAILED:
                self._recorder.record(volume, WARNING, decision.reason, decision.message)
            failed = await self._writes.set_phase(volume, FAILED, decision.message)
            await self._writes.known(failed)

    def _is_left(self, volume: PersistentVolume) -> bool:
        """Whether no node is left that could remove the data of a volume."""
        if LOCAL_FINALIZER not in volume.metadata.finalizers or volume.status.phase == BOUND:
            return False
        reachable = reachable_from(volume)
        return not any(reachable(each.metadata.name, each.metadata.labels) for each in self._nodes)


async def _both(
    first: Coroutine[Any, Any, PersistentVolume], second: Coroutine[Any, Any, PersistentVolumeClaim]
) -> tuple[PersistentVolume, PersistentVolumeClaim]:
    """Return both results once both are done. Raises the first error."""
    volume, claim = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(volume, BaseException):
        raise volume
    if isinstance(claim, BaseException):
        raise claim
    return volume, claim


def _unbound_class(claim: PersistentVolumeClaim) -> Hashable | None:
    if claim.spec.volumeName:
        return None
    return "" if has_no_class(claim) else class_of(claim)


def _volume_key(claim: PersistentVolumeClaim) -> Hashable | None:
    return claim.spec.volumeName or None


def _left_to_node(volume: PersistentVolume) -> Hashable | None:
    return True if volume.metadata.deletionTimestamp else None
