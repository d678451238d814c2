"""AttachDetachController: keeps the VolumeAttachments of volumes whose driver attaches them."""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.claims import claims_of
from kedge.api.model import Document, ObjectMeta
from kedge.api.storage_v1 import csi, persistent_volume
from kedge.api.storage_v1.binding import is_fully_bound
from kedge.api.storage_v1.csi import ATTACHMENTS, CsiDriver, VolumeAttachment
from kedge.api.storage_v1.persistent_volume import VOLUMES, PersistentVolume
from kedge.client.client import Client
from kedge.client.events import NORMAL, WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.shared_informers import SharedInformers
from kedge.controllers.volumes.multi_attach import waiting_message
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "attachdetach-controller"
MANAGED: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
FORCE_SECONDS: Final = 360.0
"""How long a detach waits for a node that does not report to unmount the volume."""
ATTACH_SECONDS: Final = 120.0
"""How long an attacher may take before pods get an event, and then another one."""
SHARED_MODES: Final = frozenset(("ReadOnlyMany", "ReadWriteMany"))
"""Access modes of volumes that several nodes may have attached at the same time."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


class WantedAttachment(NamedTuple):
    """A volume that a pod needs on a node."""

    driver: str
    handle: str
    volume: str
    node: str

    @property
    def name(self) -> str:
        """The name of the VolumeAttachment, as in Kubernetes."""
        text = f"{self.handle}{self.driver}{self.node}"
        return f"csi-{sha256(text.encode()).hexdigest()}"

    @property
    def unique_name(self) -> str:
        """The name of the volume in the status of its node."""
        return f"kubernetes.io/csi/{self.driver}^{self.handle}"


class AttachDetachController:
    """Looks at a node when its pods, their claims, volumes or attachments change."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pods = shared.of(PODS)
        self._claims = shared.of(CLAIMS)
        self._nodes = shared.of(node.RESOURCE)
        self._volumes = shared.viewed(VOLUMES, persistent_volume.decode)
        self._drivers = shared.viewed(csi.DRIVERS, csi.decode_driver)
        self._attachments = shared.viewed(ATTACHMENTS, csi.decode_attachment)
        self._placed = self._pods.by(_node_with_claims)
        self._attached_to = self._attachments.by(lambda each: each.spec.nodeName)
        self._holding = self._attachments.by(lambda each: each.spec.source.persistentVolumeName)
        self._unwanted_since: dict[str, float] = {}
        self._unattached_since: dict[str, float] = {}
        self._waiting: dict[str, set[str]] = {}
        """The nodes that wait until another node gives a volume back."""
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[str] = ControllerLoop("attachdetach", self._reconcile, clock)
        self._pods.follow(self._pod_changed)
        self._claims.follow(self._claim_changed)
        self._nodes.follow(self._node_changed)
        self._attachments.follow(self._attachment_changed)
        self._drivers.follow(self._driver_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: the nodes to look at.

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        for pod in (before, now):
            if pod is not None and (name := _node_with_claims(pod)):
                self._loop.add(name)

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, now: PersistentVolumeClaim | None
    ) -> None:
        if now is None or not is_fully_bound(now) or (before and is_fully_bound(before)):
            return
        for name in {each.spec.nodeName for each in self._pods.within(now.metadata.namespace)}:
            if name and self._placed.count(name):
                self._loop.add(name)

    def _node_changed(self, before: Node | None, now: Node | None) -> None:
        for each in (before, now):
            if each is not None and self._attached_to.count(each.metadata.name):
                self._loop.add(each.metadata.name)

    def _attachment_changed(
        self, before: VolumeAttachment | None, now: VolumeAttachment | None
    ) -> None:
        for each in (before, now):
            if each is not None:
                self._loop.add(each.spec.nodeName)
        if now is not None and before is not None:
            self._report(before, now)
        elif before is not None:
            self._unattached_since.pop(before.metadata.name, None)
            for name in self._waiting.pop(before.spec.source.persistentVolumeName, ()):
                self._loop.add(name)

    def _driver_changed(self, before: CsiDriver | None, now: CsiDriver | None) -> None:
        """Look at all nodes if a driver attaches volumes from now on, or no longer."""
        if _is_attaching(before) != _is_attaching(now):
            for each in self._nodes:
                self._loop.add(each.metadata.name)

    def _report(self, before: VolumeAttachment, now: VolumeAttachment) -> None:
        """Tell the pods of a volume about its attachment."""
        volume = now.spec.source.persistentVolumeName
        if now.status.attached and not before.status.attached:
            message = f'AttachVolume.Attach succeeded for volume "{volume}" '
            event = (NORMAL, "SuccessfulAttachVolume", message)
        elif now.status.attachError is not None and now.status.attachError != (
            before.status.attachError
        ):
            why = now.status.attachError.message
            message = f'AttachVolume.Attach failed for volume "{volume}" : {why}'
            event = (WARNING, "FailedAttachVolume", message)
        else:
            return
        for pod in self._placed.get(now.spec.nodeName):
            if any(each.volume == volume for each in self._wanted_by(pod)):
                self._recorder.record(pod, *event)

    # One node.

    async def _reconcile(self, name: str) -> None:
        found = self._nodes.get(name)
        if found is not None and found.metadata.annotations.get(MANAGED) != "true":
            return
        wanted = {
            each.name: each
            for pod in self._placed.get(name)
            if not _has_ended(pod)
            for each in self._wanted_by(pod)
        }
        known = {each.metadata.name: each for each in self._attached_to.get(name)}
        if found is not None:
            for each in wanted.values():
                self._unwanted_since.pop(each.name, None)
                if each.name in known:
                    self._report_delay(each, known[each.name])
                elif not self._is_held_elsewhere(each):
                    await self._attach(each)
            await self._write_attached(found, known.values())
        for attachment in known.values():
            if attachment.metadata.name not in wanted:
                await self._detach(found, attachment)

    def _wanted_by(self, pod: Pod) -> Iterator[WantedAttachment]:
        for asked in claims_of(pod):
            claim = self._claims.get(asked.name, pod.metadata.namespace)
            if claim is None or not is_fully_bound(claim):
                continue
            volume = self._volumes.get(claim.spec.volumeName)
            if volume is not None and volume.spec.csi is not None and self._attaches(volume):
                source = volume.spec.csi
                yield WantedAttachment(
                    source.driver, source.volumeHandle, volume.metadata.name, pod.spec.nodeName
                )

    def _attaches(self, volume: PersistentVolume) -> bool:
        """Whether the driver of a volume must attach it; one that nothing is known of must."""
        return _is_attaching(self._drivers.get(volume.driver))

    def _is_held_elsewhere(self, wanted: WantedAttachment) -> bool:
        """Whether another node has a volume that only one may have; its end is waited for."""
        volume = self._volumes.get(wanted.volume)
        modes = volume.spec.accessModes if volume is not None else ()
        if not modes or not SHARED_MODES.isdisjoint(modes):
            return False
        holders = {each.spec.nodeName for each in self._holding.get(wanted.volume)} - {wanted.node}
        if not holders:
            return False
        waiting = self._waiting.setdefault(wanted.volume, set())
        if wanted.node not in waiting:
            waiting.add(wanted.node)
            self._report_wait(wanted, holders)
        return True

    def _report_delay(self, wanted: WantedAttachment, attachment: VolumeAttachment) -> None:
        """Tell the pods of a volume that no attacher has attached it."""
        name, status = wanted.name, attachment.status
        if status.attached or status.attachError is not None:
            self._unattached_since.pop(name, None)
            return
        now = self._clock.monotonic()
        left = self._unattached_since.setdefault(name, now) + ATTACH_SECONDS - now
        if left <= 0:
            self._unattached_since[name], left = now, ATTACH_SECONDS
            message = (
                f'AttachVolume.Attach failed for volume "{wanted.volume}" : timed out waiting for'
                f" external-attacher of {wanted.driver} CSI driver to attach volume"
                f" {wanted.handle}"
            )
            for pod in self._users(wanted.node, wanted.volume):
                self._recorder.record(pod, WARNING, "FailedAttachVolume", message)
        self._loop.add_later(wanted.node, left)

    def _report_wait(self, wanted: WantedAttachment, holders: Iterable[str]) -> None:
        """Tell the pods of a node which pods of other nodes have their volume."""
        users = [pod for name in holders for pod in self._users(name, wanted.volume)]
        for pod in self._users(wanted.node, wanted.volume):
            message = waiting_message(wanted.volume, pod, users)
            self._recorder.record(pod, WARNING, "FailedAttachVolume", message)

    def _users(self, node_name: str, volume: str) -> list[Pod]:
        """Return the pods of a node that need a volume."""
        return [
            pod
            for pod in self._placed.get(node_name)
            if not _has_ended(pod) and any(each.volume == volume for each in self._wanted_by(pod))
        ]

    async def _attach(self, wanted: WantedAttachment) -> None:
        spec = {
            "attacher": wanted.driver,
            "nodeName": wanted.node,
            "source": {"persistentVolumeName": wanted.volume},
        }
        made = Document(metadata=ObjectMeta(name=wanted.name), content={"spec": spec})
        try:
            await self._client.create(ATTACHMENTS, made)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
        # Another node that wants the volume must see this attachment.
        await self._attachments.until(Key("", wanted.name), lambda now: now is not None)

    async def _write_attached(self, found: Node, known: Iterable[VolumeAttachment]) -> None:
        """Tell a node which volumes are attached to it."""
        attached = sorted(self._unique_names(known))
        if [each.name for each in found.status.volumesAttached] == attached:
            return
        listed = [{"name": each, "devicePath": ""} for each in attached]
        patch: Mapping[str, Any] = {"status": {"volumesAttached": listed}}
        await self._client.patch(node.RESOURCE, found.metadata.name, patch, subresource="status")

    def _unique_names(self, known: Iterable[VolumeAttachment]) -> Iterator[str]:
        for each in known:
            volume = self._volumes.get(each.spec.source.persistentVolumeName)
            is_there = each.status.attached and not each.metadata.deletionTimestamp
            if is_there and volume is not None and volume.spec.csi is not None:
                source = volume.spec.csi
                yield f"kubernetes.io/csi/{source.driver}^{source.volumeHandle}"

    async def _detach(self, found: Node | None, attachment: VolumeAttachment) -> None:
        """Delete an attachment that this controller made, once its node has unmounted it or is
        gone."""
        name = attachment.metadata.name
        if attachment.metadata.deletionTimestamp or not self._is_ours(attachment):
            return
        now = self._clock.monotonic()
        since = self._unwanted_since.setdefault(name, now)
        volume = self._volumes.get(attachment.spec.source.persistentVolumeName)
        if found is not None and volume is not None and _is_mounted(found, volume):
            if _is_healthy(found):
                return
            if now < since + FORCE_SECONDS:
                self._loop.add_later(attachment.spec.nodeName, since + FORCE_SECONDS - now)
                return
        self._unwanted_since.pop(name, None)
        await self._client.delete(ATTACHMENTS, name)

    def _is_ours(self, attachment: VolumeAttachment) -> bool:
        """Whether an attachment has the name that this controller gives; others are left alone."""
        spec = attachment.spec
        volume = self._volumes.get(spec.source.persistentVolumeName)
        if volume is None or volume.spec.csi is None:
            return False
        handle = volume.spec.csi.volumeHandle
        made = WantedAttachment(spec.attacher, handle, volume.metadata.name, spec.nodeName)
        return made.name == attachment.metadata.name


def _unique(volume: PersistentVolume) -> str:
    source = volume.spec.csi
    return f"kubernetes.io/csi/{source.driver}^{source.volumeHandle}" if source else ""


def _is_mounted(found: Node, volume: PersistentVolume) -> bool:
    """Whether a node that is in service has a volume mounted."""
    is_gone = any(taint.key == OUT_OF_SERVICE for taint in found.spec.taints)
    return not is_gone and _unique(volume) in found.status.volumesInUse


def _is_healthy(found: Node) -> bool:
    """Whether a node reports: it unmounts a volume itself, and nothing may be forced on it."""
    return any(each.type == "Ready" and each.status == "True" for each in found.status.conditions)


def _is_attaching(driver: CsiDriver | None) -> bool:
    """Whether volumes of a driver need attachments; those of an unknown one do."""
    return driver is None or driver.spec.attachRequired


def _node_with_claims(pod: Pod) -> str | None:
    return pod.spec.nodeName or None if any(True for _ in claims_of(pod)) else None


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")
