"""CriImageService: finds and pulls images through a container runtime."""

import asyncio
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from kedge.api.core_v1.node_types import ContainerImage
from kedge.api.core_v1.secret import Secret
from kedge.deviceplugin.messages import Empty
from kedge.machinery.clock import Clock
from kedge.node.images import credentials, garbage
from kedge.node.images.credentials import CredentialSource, FoundCredentials, RegistryCredential
from kedge.node.images.garbage import DiskSpace, GarbagePlan, GarbageThresholds, ImageCandidate
from kedge.node.images.image import LocalImage
from kedge.node.images.mapping import ImageMapping, is_host
from kedge.node.images.oci import ImageConfig, InvalidImage
from kedge.node.images.pull_records import PullRecords
from kedge.node.images.reference import ImageReference, InvalidImageName
from kedge.node.pod.dependencies import ImageFailure, VolumeFailure
from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.cri.connection import PULL_SECONDS, CriConnection
from kedge.node.runtime.runtime import NotFoundError, RuntimeFailure

_NO_HOST: Final = (
    'Container image "host" needs kedge\'s own runtime: name another image, or start the node'
    " without --runtime"
)


class CriImageService:
    """Fulfils kedge.node.pod.dependencies.ImageResolver. Other programs may use the images of the
    runtime too, so garbage collection deletes only those that this node has pulled."""

    def __init__(
        self,
        connection: CriConnection,
        mapping: ImageMapping,
        directory: Path,
        clock: Clock,
        *,
        own_credentials: CredentialSource | None = None,
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._connection = connection
        self._mapping = mapping
        self._records = PullRecords(directory)
        self._clock = clock
        self._own_credentials = own_credentials
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By image: held by those who pull it or wait for that."""
        self._used: dict[str, float] = {}
        """By id: when the image was last seen in use."""
        self._listed: Sequence[m.CriImage] = ()

    async def resolve(
        self, name: str, policy: str, secrets: Sequence[Secret], progress: Callable[[], None]
    ) -> LocalImage:
        """Return the image with a name; see ImageResolver for the contract."""
        reference = self._reference(name)
        if is_host(reference):
            raise ImageFailure("ErrImageNeverPull", _NO_HOST)
        trouble = ""
        try:
            held = credentials.found(credentials.keyring(secrets), [reference.repository])
            if image := await self._here(reference, policy, held):
                return image
            if policy == "Never" and await self._find(reference) is None:
                raise ImageFailure("ErrImageNeverPull", _never(name))
            lock = self._locks.setdefault(reference.key, asyncio.Lock())
            async with lock:
                # Another container may have pulled it while this one waited.
                if image := await self._here(reference, policy, held):
                    return image
                held, trouble = await self._with_own(reference, held)
                if image := await self._here(reference, policy, held):
                    return image
                if policy == "Never":
                    raise ImageFailure("ErrImageNeverPull", _never(name) + trouble)
                return await self._pull(reference, held, progress)
        except (InvalidImage, RuntimeFailure, NotFoundError, TimeoutError, OSError) as error:
            text = f'failed to pull image "{reference}": {error}{trouble}'
            raise ImageFailure("ErrImagePull", text) from error

    async def _with_own(
        self, reference: ImageReference, held: FoundCredentials
    ) -> tuple[FoundCredentials, str]:
        """Return a pod's credentials followed by those of the node. If the latter cannot be read,
        return the pod's alone, and the cause for the message of a later failure."""
        if self._own_credentials is None:
            return held, ""
        try:
            # In a thread: it may run a credential helper.
            own = await asyncio.to_thread(
                credentials.found, self._own_credentials, [reference.repository]
            )
        except InvalidImage as error:
            return held, f"; the node's own credentials cannot be used: {error}"
        return held.followed_by(own), ""

    async def _here(
        self, reference: ImageReference, policy: str, held: FoundCredentials
    ) -> LocalImage | None:
        """Return the image if the runtime has it and the registry need not be asked about it. A
        pod must not use private images that other tenants have pulled; images that were imported
        by hand are for all."""
        image = await self._find(reference)
        if image is None or policy == "Always":
            return None
        is_allowed = not self._records.is_known(image.id) or self._records.allows(
            image.id, reference.repository, held.all
        )
        return image if is_allowed else None

    async def _find(self, reference: ImageReference) -> LocalImage | None:
        request = m.CriImageRequest(image=m.CriImageSpec(image=str(reference)))
        found = (await self._connection.call(m.IMAGE_STATUS, request)).image
        if found is None:
            return None
        self._used[found.id] = self._clock.monotonic()
        return local_image(found, str(reference))

    async def _pull(
        self, reference: ImageReference, held: FoundCredentials, progress: Callable[[], None]
    ) -> LocalImage:
        progress()
        used = await self._pulled_with(reference, held.all)
        image = await self._find(reference)
        if image is None:
            raise InvalidImage("it was removed right after the pull")
        await asyncio.to_thread(self._records.add, image.id, reference.repository, used)
        return image

    async def _pulled_with(
        self, reference: ImageReference, held: Sequence[RegistryCredential]
    ) -> RegistryCredential | None:
        """Pull an image with the first credential that the registry takes; return it."""
        failure: Exception | None = None
        for each in held or (None,):
            auth = None if each is None else _auth(each)
            request = m.CriPullRequest(image=m.CriImageSpec(image=str(reference)), auth=auth)
            try:
                await self._connection.call(m.PULL_IMAGE, request, PULL_SECONDS)
            except (RuntimeFailure, NotFoundError) as error:
                failure = failure or error
            else:
                return each
        raise InvalidImage(str(failure)) from failure

    def _reference(self, name: str) -> ImageReference:
        try:
            reference = ImageReference.parse(name)
        except InvalidImageName as error:
            raise ImageFailure(
                "InvalidImageName",
                f'Failed to apply default image tag "{name}": couldn\'t parse image name'
                f' "{name}": {error}',
            ) from error
        return self._mapping.target(reference) or reference

    # Volumes of images: a runtime of CRI mounts them itself, if it can.

    def hold_volume(self, id_: str, pod_directory: Path, volume: str) -> None:
        raise VolumeFailure("FailedMount", "volumes of images need kedge's own runtime")

    def release_volumes(self, uid: str) -> None:
        return

    # The list, and its garbage.

    async def refresh(self) -> None:
        """Read the list of images anew."""
        self._listed = (await self._connection.call(m.LIST_IMAGES, m.CriImageRequest())).images
        listed = {each.id for each in self._listed}
        self._used = {id_: moment for id_, moment in self._used.items() if id_ in listed}

    def in_status(self) -> Sequence[ContainerImage]:
        """Return the images as the Node's status lists them, as of the last `refresh`."""
        return [
            ContainerImage(names=[*each.repo_digests, *each.repo_tags], sizeBytes=each.size)
            for each in self._listed
        ]

    async def collect(
        self, thresholds: GarbageThresholds, keep: Collection[str] = ()
    ) -> GarbagePlan:
        """Delete unused images that this node has pulled, if the disk is full."""
        try:
            return await self._collect(thresholds, keep)
        except (RuntimeFailure, NotFoundError, TimeoutError) as error:
            raise OSError(str(error)) from error

    async def _collect(self, thresholds: GarbageThresholds, keep: Collection[str]) -> GarbagePlan:
        await self.refresh()
        answer = await self._connection.call(m.IMAGE_FILESYSTEMS, Empty())
        places = [each.fs_id.mountpoint for each in answer.image_filesystems if each.fs_id]
        if not places:
            return GarbagePlan((), 0, 0)
        now = self._clock.monotonic()
        containers = await self._connection.call(m.LIST_CONTAINERS, m.CriListContainersRequest())
        in_use = {each.image_id or each.image_ref for each in containers.containers}
        for id_ in in_use:
            self._used[id_] = now
        own = [each for each in self._listed if self._records.is_known(each.id)]
        plan = garbage.plan(
            [_candidate(each, self._used.setdefault(each.id, now)) for each in own],
            {each.id: each.size for each in own},
            keep={*keep, *in_use},
            now=now,
            thresholds=thresholds,
            disk=_disk(places[0]),
        )
        for id_ in plan.images:
            request = m.CriImageRequest(image=m.CriImageSpec(image=id_))
            await self._connection.call(m.REMOVE_IMAGE, request)
            self._records.remove(id_)
        return plan


def local_image(image: m.CriImage, name: str) -> LocalImage:
    """Return an image of the runtime, as the node knows images."""
    user = str(image.uid.value) if image.uid is not None else image.username
    return LocalImage(
        id=image.id,
        name=name,
        names=tuple(image.repo_tags),
        digests=tuple(image.repo_digests),
        config=ImageConfig(user=user),
        size=image.size,
    )


def _candidate(image: m.CriImage, last_used: float) -> ImageCandidate:
    return ImageCandidate(image.id, last_used, (image.id,), is_pinned=image.pinned)


def _disk(place: str) -> DiskSpace:
    # The directory may not exist before the first image.
    path = Path(place)
    while not path.exists():
        path = path.parent
    usage = shutil.disk_usage(path)
    return DiskSpace(usage.total, usage.free)


def _auth(credential: RegistryCredential) -> m.CriRegistryAuth:
    return m.CriRegistryAuth(
        username=credential.username,
        password=credential.password,
        identity_token=credential.identity_token,
    )


def _never(name: str) -> str:
    return (
        f'Container image "{name}" is not present with pull policy of Never: import it with'
        " 'ctr --namespace k8s.io images import FILE' into containerd, or with 'skopeo copy"
        f" docker-archive:FILE containers-storage:{name}' into CRI-O"
    )
