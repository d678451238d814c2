"""Collects the further arguments of drivers: secrets, the attachment, the pod, tokens."""

import base64
import hashlib
import json
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER
from kedge.client.client import Client
from kedge.machinery.durations import format_time
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.node.storage.nfs_mount import NFS_DRIVER
from kedge.node.storage.volume_driver import DriverError, DriverVolume, MountContext
from kedge.node.storage.volume_lookup import FoundVolume
from kedge.node.storage.volume_objects import (
    ATTACHMENT_VIEW,
    DRIVER_VIEW,
    CsiDriverPart,
    CsiPart,
    SecretPlace,
)

_PREFIX: Final = "csi.storage.k8s.io/"
_OWN: Final = {
    LOCAL_DRIVER: CsiDriverPart(attach_required=False, fs_group_policy="File"),
    NFS_DRIVER: CsiDriverPart(attach_required=False, fs_group_policy="None"),
}
"""The properties of the drivers in the agent, regardless of CSIDriver objects."""


def attachment_name(driver: str, handle: str, node: str) -> str:
    """Return the name of the VolumeAttachment of a volume and a node."""
    return f"csi-{hashlib.sha256(f'{handle}{driver}{node}'.encode()).hexdigest()}"


class DriverContexts:
    """Fulfils pod_storage.MountContexts."""

    def __init__(self, client: Client, sources: ReferencedObjects, node: str) -> None:
        self._client = client
        self._sources = sources
        self._node = node

    async def needs_attachment(self, volume: DriverVolume) -> bool:
        if volume.is_inline:
            return False
        return (await self._driver(volume)).attach_required

    async def requires_republish(self, driver: str) -> bool:
        return (await self._properties(driver)).requires_republish

    async def limit_period(self, driver: str) -> float:
        """Return how often a driver is asked how many volumes the node can have; 0 for never."""
        return float((await self._properties(driver)).node_allocatable_update_period_seconds)

    async def is_group_applied(self, volume: DriverVolume) -> bool:
        policy = (await self._driver(volume)).fs_group_policy
        if policy in ("File", "None"):
            return policy == "File"
        once = ("ReadWriteOnce", "ReadWriteOncePod")
        return bool(volume.fs_type) and any(each in once for each in volume.access_modes)

    async def of_stage(self, found: FoundVolume, volume: DriverVolume) -> MountContext:
        """Raises DriverError."""
        if volume.driver in _OWN:
            return MountContext()
        source = found.source
        assert isinstance(source, CsiPart)
        return MountContext(
            secrets=await self._secret(source.node_stage_secret_ref),
            publish_context=await self._attachment(volume),
        )

    async def of_publish(self, pod: Pod, found: FoundVolume, volume: DriverVolume) -> MountContext:
        """Raises DriverError."""
        if volume.driver in _OWN:
            return MountContext()
        source, driver = found.source, await self._driver(volume)
        assert isinstance(source, CsiPart)
        _check_lifecycle(volume, driver)
        reference = source.node_publish_secret_ref
        if reference is not None and volume.is_inline:
            reference = SecretPlace(name=reference.name, namespace=pod.metadata.namespace)
        secrets = await self._secret(reference)
        facts = _pod_facts(pod, volume) if driver.pod_info_on_mount else {}
        if tokens := await self._tokens(pod, driver):
            if driver.service_account_token_in_secrets:
                secrets = {**secrets, **tokens}
            else:
                facts = {**facts, **tokens}
        context = {} if volume.is_inline else await self._attachment(volume)
        return MountContext(secrets=secrets, publish_context=context, pod_attributes=facts)

    async def expand_secrets(self, source: CsiPart) -> dict[str, str]:
        return await self._secret(source.node_expand_secret_ref)

    async def _driver(self, volume: DriverVolume) -> CsiDriverPart:
        """Return the properties of a driver; the defaults if it has no object."""
        return await self._properties(volume.driver)

    async def _properties(self, driver: str) -> CsiDriverPart:
        if driver in _OWN:
            return _OWN[driver]
        try:
            return (await self._client.get_as(DRIVER_VIEW, driver)).spec
        except StatusError as error:
            if error.code != 404:
                raise VolumeFailure("FailedMount", error.message) from error
            return CsiDriverPart()

    async def _attachment(self, volume: DriverVolume) -> dict[str, str]:
        """Return the metadata of the attachment. Raises DriverError while there is none."""
        if not (await self._driver(volume)).attach_required:
            return {}
        name = attachment_name(volume.driver, volume.handle, self._node)
        try:
            attachment = await self._client.get_as(ATTACHMENT_VIEW, name)
        except StatusError as error:
            raise DriverError(
                f"volume {volume.handle} has GET error for volume attachment {name}:"
                f" {error.message}"
            ) from error
        found = attachment.status
        if attachment.metadata.deletion_timestamp:
            # Its driver detaches the volume.
            raise DriverError(f"volume attachment {name} is being deleted")
        if not found.attached:
            why = found.attach_error.message if found.attach_error is not None else ""
            raise DriverError(why or f"volume attachment {name} is not attached yet")
        return dict(found.attachment_metadata)

    async def _secret(self, place: SecretPlace | None) -> dict[str, str]:
        if place is None or not place.name:
            return {}
        try:
            found = await self._sources.secret(place.namespace, place.name)
        except StatusError as error:
            raise DriverError(f"cannot read secret {place.name}: {error.message}") from error
        if found is None:
            raise DriverError(
                f'failed to find secret {place.name}: secrets "{place.name}" not found'
            )
        return {
            key: base64.b64decode(value).decode(errors="replace")
            for key, value in found.data.items()
        }

    async def _tokens(self, pod: Pod, driver: CsiDriverPart) -> dict[str, str]:
        if not driver.token_requests:
            return {}
        found = {}
        try:
            for each in driver.token_requests:
                token = await self._sources.token(pod, each.audience, each.expiration_seconds)
                found[each.audience] = {
                    "token": token.text,
                    "expirationTimestamp": format_time(token.expires),
                }
        except StatusError as error:
            raise DriverError(f"failed to get tokens: {error.message}") from error
        return {f"{_PREFIX}serviceAccount.tokens": json.dumps(found, separators=(",", ":"))}


def _check_lifecycle(volume: DriverVolume, driver: CsiDriverPart) -> None:
    mode = "Ephemeral" if volume.is_inline else "Persistent"
    if mode not in driver.volume_lifecycle_modes:
        offered = " ".join(f'"{each}"' for each in driver.volume_lifecycle_modes)
        raise DriverError(
            "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode"
            f' "{mode}" not supported by driver {volume.driver} (only supports [{offered}])'
        )


def _pod_facts(pod: Pod, volume: DriverVolume) -> dict[str, str]:
    meta = pod.metadata
    return {
        f"{_PREFIX}pod.name": meta.name,
        f"{_PREFIX}pod.namespace": meta.namespace,
        f"{_PREFIX}pod.uid": meta.uid,
        f"{_PREFIX}serviceAccount.name": pod.spec.serviceAccountName,
        f"{_PREFIX}ephemeral": "true" if volume.is_inline else "false",
    }
