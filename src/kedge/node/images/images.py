"""The image service of a node: finds images by name, and pulls missing ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kedge.api.core_v1.secret import Secret
from kedge.node.images import credentials
from kedge.node.images.credentials import CredentialSource, FoundCredentials
from kedge.node.images.garbage import GarbagePlan, GarbageThresholds
from kedge.node.images.image import HOST_IMAGE, LocalImage
from kedge.node.images.mapping import HOST, ImageMapping, is_host
from kedge.node.images.oci import InvalidImage
from kedge.node.images.pull_failures import PullFailure
from kedge.node.images.reference import ImageReference, InvalidImageName
from kedge.node.images.registry import ImagePull, Progress, RegistryClient
from kedge.node.images.store import ImageStore, NoSuchImage
from kedge.node.pod.dependencies import ImageFailure

_NO_HOST: Final = (
    'Container image "host" is switched off on this node: name another image, or start the node'
    " without --no-host-image"
)


class ImageService:
    """Pulls images and finds them. Fulfils kedge.node.pod.dependencies.ImageResolver.

    Pulls of one image run one after the other, pulls of different images in parallel. Slow work
    does not run on the event loop.
    """

    def __init__(
        self,
        store: ImageStore,
        registries: RegistryClient,
        mapping: ImageMapping,
        *,
        node: str = "",
        has_host: bool = True,
        own_credentials: CredentialSource | None = None,
    ) -> None:
        """`node` distinguishes the holds of this node from those of other nodes with the same
        store. Without `has_host`, containers with the image `host` are refused. All pods may pull
        with `own_credentials`, which come after those of the pod."""
        self._own_credentials = own_credentials
        self._has_host = has_host
        self._node = node
        self._store = store
        self._registries = registries
        self._mapping = mapping
        self._turns: dict[str, _PullLock] = {}

    async def resolve(
        self, name: str, policy: str, secrets: Sequence[Secret], progress: Callable[[], None]
    ) -> LocalImage:
        """Return the image with a name; see ImageResolver for the contract.

        A name that was loaded by hand is never looked up in a registry, whatever the policy is: an
        image of the same name from a registry must not replace it.
        """
        reference = self._reference(name)
        if is_host(reference):
            if not self._has_host:
                raise ImageFailure("ErrImageNeverPull", _NO_HOST)
            return HOST_IMAGE
        try:
            held = self._of_secrets(reference, secrets)
        except InvalidImage as error:
            raise ImageFailure("ErrImagePull", _failed(name, reference, error)) from error
        if image := await self._here(reference, policy, held):
            return image
        if policy == "Never" and await asyncio.to_thread(self._find, reference) is None:
            raise ImageFailure("ErrImageNeverPull", _never(name))
        async with self._turn(reference.key):
            # Another container may have pulled it while this one waited.
            if image := await self._here(reference, policy, held):
                return image
            held, trouble = await self._with_own(reference, held)
            if image := await self._here(reference, policy, held):
                return image
            if policy == "Never":
                raise ImageFailure("ErrImageNeverPull", _denied(name) + trouble)
            progress()
            try:
                return await self._fetch(reference, held)
            except (PullFailure, InvalidImage, NoSuchImage, OSError) as error:
                text = _failed(name, reference, error, trouble)
                raise ImageFailure("ErrImagePull", text) from error

    async def _with_own(
        self, reference: ImageReference, held: FoundCredentials
    ) -> tuple[FoundCredentials, str]:
        """Return a pod's credentials followed by those of the node. If the latter cannot be read,
        return the pod's alone, and the cause for the message of a later failure."""
        try:
            return held.followed_by(await self._of_node(reference)), ""
        except InvalidImage as error:
            return held, f"; the node's own credentials cannot be used: {error}"

    def _of_secrets(self, reference: ImageReference, secrets: Sequence[Secret]) -> FoundCredentials:
        """Return the credentials of the pod's pull secrets; raises InvalidImage."""
        return credentials.found(
            credentials.keyring(secrets), self._registries.repositories(reference)
        )

    async def _of_node(self, reference: ImageReference) -> FoundCredentials:
        """Return the node's own credentials; raises InvalidImage."""
        if self._own_credentials is None:
            return FoundCredentials()
        # In a thread: it may run a credential helper.
        return await asyncio.to_thread(
            credentials.found, self._own_credentials, self._registries.repositories(reference)
        )

    async def _here(
        self, reference: ImageReference, policy: str, held: FoundCredentials
    ) -> LocalImage | None:
        """Return the image if it is here and the registry need not be asked about it.

        The registry is asked even with IfNotPresent if none of the pod's credentials has pulled
        the image: a pod must not use private images of other tenants.
        """
        found = await asyncio.to_thread(self._find, reference)
        if found is None:
            return None
        if found.is_loaded:
            return found.image
        if policy == "Always":
            return None
        is_allowed = await asyncio.to_thread(
            self._store.allows, found.image.id, reference, held.all
        )
        return found.image if is_allowed else None

    def get(self, id_: str) -> LocalImage | None:
        """Return the image with the id in ContainerConfig.image."""
        return HOST_IMAGE if id_ == HOST else self._store.get(id_)

    def hold(self, id_: str, container: str) -> None:
        """Record that a container uses the image."""
        if id_ != HOST:
            self._store.hold(id_, container, self._node)

    def release(self, container: str) -> None:
        self._store.release(container)

    def hold_volume(self, id_: str, pod_directory: Path, volume: str) -> None:
        """Record that a volume of a pod shows the image. The name of the directory is the uid."""
        holder = f"{pod_directory.name}-{volume}"
        self._store.hold(id_, holder, self._node, str(pod_directory))

    def release_volumes(self, uid: str) -> None:
        """Release the images of all volumes of a pod, also those that an earlier agent held."""
        self._store.release_all(f"{uid}-")

    def release_others(self, containers: Collection[str]) -> None:
        """Release the images of all containers but these: a previous agent may have been killed
        before it released them."""
        self._store.release_others(self._node, containers)

    async def collect(
        self, thresholds: GarbageThresholds, keep: Collection[str] = ()
    ) -> GarbagePlan:
        """Delete unused images if the disk is full."""
        return await asyncio.to_thread(self._store.collect, thresholds, keep)

    def _reference(self, name: str) -> ImageReference:
        """Return the reference of a name after mapping."""
        try:
            reference = ImageReference.parse(name)
        except InvalidImageName as error:
            raise ImageFailure(
                "InvalidImageName",
                f'Failed to apply default image tag "{name}": couldn\'t parse image name'
                f' "{name}": {error}',
            ) from error
        return self._mapping.target(reference) or reference

    def _find(self, reference: ImageReference) -> "_ImageMatch | None":
        try:
            image = self._store.find(reference)
        except InvalidImage:
            return None
        if image is None:
            return None
        self._store.touch(image.id)
        return _ImageMatch(image, self._store.is_loaded(reference))

    async def _fetch(
        self,
        reference: ImageReference,
        held: FoundCredentials,
        progress: Progress | None = None,
    ) -> LocalImage:
        """Return the image that the registry has now; pull it unless it is here. Raises
        PullFailure, InvalidImage, NoSuchImage or OSError."""
        image = await self._unchanged(reference, held)
        return image or await self._pull(reference, held, progress)

    async def _unchanged(
        self, reference: ImageReference, held: FoundCredentials
    ) -> LocalImage | None:
        """Return the stored image if the registry has it under that name.

        A name with a digest is checked too: knowing a digest does not give the right to pull it.
        """
        digest, used = await self._registries.digest(reference, held)
        here = await asyncio.to_thread(self._find, reference.at(digest))
        if here is None:
            return None
        await asyncio.to_thread(self._store.allow, here.image.id, reference, used)
        await asyncio.to_thread(self._store.name, here.image.id, [reference], loaded=False)
        return await asyncio.to_thread(self._store.find, reference)

    async def pull(self, reference: ImageReference, progress: Progress) -> LocalImage:
        """Pull an image for all pods, with the node's own credentials. Raises PullFailure,
        InvalidImage, NoSuchImage or OSError."""
        held = await self._of_node(reference)
        async with self._turn(reference.key):
            image = await self._fetch(reference, held, progress)
        await asyncio.to_thread(self._store.allow, image.id, reference, None)
        return image

    async def _pull(
        self,
        reference: ImageReference,
        held: FoundCredentials,
        progress: Progress | None = None,
    ) -> LocalImage:
        scratch = self._store.scratch()
        directory = await asyncio.to_thread(scratch.__enter__)
        try:
            wanted = ImagePull(reference, directory, self._store.has_layer, self._store.limits)
            if progress is not None:
                wanted = replace(wanted, progress=progress)
            packed, used = await self._registries.pull(wanted, held)
            await asyncio.to_thread(self._store.add, packed, [reference], loaded=False)
            await asyncio.to_thread(self._store.allow, packed.id, reference, used)
        finally:
            await asyncio.to_thread(scratch.__exit__, None, None, None)
        image = await asyncio.to_thread(self._store.find, reference)
        if image is None:
            raise InvalidImage("it was removed right after the pull")
        return image

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        """Lock the image against concurrent pulls."""
        turn = self._turns.setdefault(key, _PullLock())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop(key, None)


class _PullLock:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class _ImageMatch:
    def __init__(self, image: LocalImage, is_loaded: bool) -> None:
        self.image = image
        self.is_loaded = is_loaded


def _denied(name: str) -> str:
    return (
        f'image "{name}" is present with pull policy of "Never" but does not have the proper'
        " credentials to access the image"
    )


def _never(name: str) -> str:
    return f'Container image "{name}" is not present with pull policy of Never: {_advice(name)}'


def _failed(name: str, reference: ImageReference, why: Exception, more: str = "") -> str:
    special = f"{why.advice}, or " if isinstance(why, PullFailure) and why.advice else ""
    return f'failed to pull image "{reference}": {why}{more}: {special}{_advice(name)}'


def _advice(name: str) -> str:
    """Return a hint for a machine that cannot pull the image."""
    return (
        "load it with 'kedge image load FILE', or have it mean the machine's own files with"
        f" 'kedge up --image-map {name}=host'"
    )
