"""The volumes of pods: mounts, updates and unmounts them."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from kedge.api.core_v1.pod.container import Container, VolumeMount
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.volume.volume import EmptyDirVolumeSource, ImageVolumeSource, Volume
from kedge.client.workqueue import Backoff, WorkQueue
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.cgroups import amounts
from kedge.node.host.kubelet_directory import KubeletDirectory
from kedge.node.images.image import LocalImage
from kedge.node.pod.dependencies import (
    ConfigFailure,
    EventSink,
    ImageFailure,
    PullSecretReader,
    ThisNode,
    VolumeFailure,
)
from kedge.node.pod.environment.downward import downward_context
from kedge.node.pod.referenced_objects import (
    ConfigObjectKey,
    ConfigObjectWatches,
    ReferencedObjects,
    ServiceAccountToken,
)
from kedge.node.runtime.runtime import ContainerDevice, ContainerMount, RuntimeFailure
from kedge.node.storage.pod_storage import PodStorage
from kedge.node.storage.republisher import Republisher
from kedge.node.volumes import empty_dir, host_path, image_volume, mounts, payload, subpath, usage
from kedge.node.volumes.atomic_writer import AtomicWriter
from kedge.node.volumes.empty_dir import MemoryMounter
from kedge.node.volumes.payload import PayloadCollector, VolumePayload, gather_all
from kedge.supervisor.kernel import libc

log = logging.getLogger(__name__)
T = TypeVar("T")

_RENEWAL: Final = 60.0
"""Seconds between two checks for tokens that need renewal."""
_REFRESHERS: Final = 4
"""Pods whose files are updated in parallel."""
_RETRIES: Final = Backoff(first=0.1, most=60.0)
_AT_ONCE: Final = 32
"""Volumes of one pod whose files are collected in parallel."""
_MOST_BYTES: Final = 256 << 20
"""Bytes of all files from API objects of one pod. They are in memory that does not count for the
pod, and a short list of items can name one large key a thousand times."""
_REFRESHING: Final = 0.2
"""Largest share of time that updating the files of one pod may take."""
_LATEST: Final = 60.0
"""Seconds after which files are updated regardless of that share."""
_FEW_FILES: Final = 32
_LOOKING: Final = 0.05
"""Largest share of time for measuring the volumes of a pod."""


# Containers determine how long these take: minutes, with millions of files. Each has threads of its
# own, so that the cleanup of one pod does not delay the mounts of others.
_WORK: Final = ThreadPoolExecutor(4, "volumes")
_REMOVALS: Final = ThreadPoolExecutor(2, "volume-removal")
_LOOKS: Final = ThreadPoolExecutor(1, "volume-usage")


class VolumeImages(Protocol):
    """The images that volumes show (kedge.node.images.images)."""

    async def resolve(
        self, name: str, policy: str, secrets: Sequence[Secret], progress: Callable[[], None]
    ) -> LocalImage: ...

    def hold_volume(self, id_: str, pod_directory: Path, volume: str) -> None:
        """Record that a volume of a pod shows the image. Raises VolumeFailure if it cannot."""
        ...

    def release_volumes(self, uid: str) -> None: ...


class _MountedVolumes:
    """The state of one pod's volumes."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.made: set[str] = set()
        """Volumes that are created once and not updated."""
        self.tokens: dict[str, Sequence[ServiceAccountToken]] = {}
        """By volume."""
        self.shown: dict[str, Mapping[ConfigObjectKey, str]] = {}
        """By volume: the versions of the objects in its files."""
        self.layouts: dict[str, AtomicWriter] = {}
        """By volume: the latest files."""
        self.images: dict[str, Path] = {}
        """By volume: where the files of an image are."""
        self.sizes: dict[str, int] = {}
        """By volume: bytes of the files."""
        self.refreshed = 0.0
        self.refresh_took = 0.0
        self.turn = asyncio.Lock()
        """Held while files are collected and written, so that older content is not written
        later."""
        self.disk = asyncio.Lock()
        """Held during work on the disk."""
        self.gone = False
        self.outdated = False
        """Whether a failure to update the files has been logged."""
        self.looked_at = 0.0
        self.look_took = 0.0


class PodVolumes:
    """All volumes of one node's pods. Fulfils dependencies.VolumeMounter.

    `directory` is for the volumes on disk, `memory` for those that must not be on a disk.
    """

    def __init__(
        self,
        directory: Path,
        memory: Path,
        sources: ReferencedObjects,
        following: ConfigObjectWatches,
        this: ThisNode,
        events: EventSink,
        clock: Clock,
        *,
        storage: PodStorage,
        kubelet: KubeletDirectory,
        images: VolumeImages,
        pull_secrets: PullSecretReader,
        may_mount: bool,
        mounter: MemoryMounter | None,
    ) -> None:
        """`mounter` mounts volumes in memory if the agent may not; None if nothing may."""
        self._directory = directory
        self._memory = memory
        self._payloads = PayloadCollector(sources, following, clock)
        self._following = following
        self._this = this
        self._events = events
        self._clock = clock
        self._storage = storage
        self._kubelet = kubelet
        self._images = images
        self._pull_secrets = pull_secrets
        self._may_mount = may_mount
        self._mounter = mounter
        self._held: dict[str, _MountedVolumes] = {}
        self._stale: WorkQueue[str] = WorkQueue(clock, _RETRIES)
        self._republisher = Republisher(storage, self._pod, events, clock)

    def open(self) -> None:
        """Mount a tmpfs for volumes that must not be on a disk, if the agent may."""
        self._memory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._may_mount and not mounts.mounted(self._memory):
            mounts.memory(self._memory, "mode=0700", flags=libc.MS_NOEXEC)

    async def run(self) -> None:
        """Update files and renew tokens until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_REFRESHERS):
                tasks.create_task(self._refresh())
            tasks.create_task(self._renew())
            tasks.create_task(self._republisher.run())

    # Mount and unmount.

    async def mount(self, pod: Pod) -> None:
        held = self._hold(pod)
        await self._bring_up_to_date(held, pod.spec.volumes)

    def _hold(self, pod: Pod) -> _MountedVolumes:
        uid = pod.metadata.uid
        held = self._held.get(uid)
        if held is None:
            held = self._held[uid] = _MountedVolumes(pod)
            self._tell_of_shortfalls(pod)
        held.pod = pod
        self._following.hold(uid, payload.references(pod), lambda what: self._changed(uid, what))
        return held

    async def _bring_up_to_date(self, held: _MountedVolumes, volumes: Sequence[Volume]) -> None:
        async with held.turn:
            # A pod may have thousands of volumes, whose files are all in memory until they are
            # written.
            turns = asyncio.Semaphore(_AT_ONCE)
            await gather_all(self._make(held, volume, turns) for volume in volumes)

    async def _make(self, held: _MountedVolumes, volume: Volume, turns: asyncio.Semaphore) -> None:
        if _is_stored(volume):
            if volume.name not in held.made:
                await self._storage.mount(held.pod, volume)
                held.made.add(volume.name)
            return
        try:
            if payload.of(volume):
                async with turns:
                    await self._fill(held, volume)
            elif volume.image is None and volume.name not in held.made:
                await self._do(held, self._make_once, held.pod, volume)
                await self._mount_in_memory(held.pod, volume)
                held.made.add(volume.name)
        except (
            VolumeFailure,
            ImageFailure,
            RuntimeFailure,
            StatusError,
            OSError,
            ValueError,
        ) as error:
            text = f'MountVolume.SetUp failed for volume "{volume.name}" : {_words(error)}'
            raise VolumeFailure("FailedMount", text) from error

    async def _fill(self, held: _MountedVolumes, volume: Volume) -> None:
        pod, name = held.pod, volume.name
        context = downward_context(self._this.node, self._this.exposed)
        known = held.tokens.get(name, ())
        fresh = await self._payloads.collect(pod, volume, context, known)
        held.tokens[name], held.shown[name] = fresh.tokens, fresh.versions
        held.sizes[name] = fresh.size
        if sum(held.sizes.values()) > _MOST_BYTES:
            raise VolumeFailure(
                "FailedMount", f"the pod's files of API objects are larger than {_MOST_BYTES} bytes"
            )
        for reference in fresh.versions:
            # An object that changed while the others were still being read was compared with the
            # versions before.
            self._changed(pod.metadata.uid, reference)
        if name not in held.layouts:
            held.layouts[name] = AtomicWriter(self.place(pod, name), _group(pod))
        write = partial(held.layouts[name].write, fresh.files, self._clock.now())
        if self._is_quick(fresh) and not self.place(pod, name).exists():
            async with held.disk:
                if not held.gone:
                    write()
                    return
        await self._do(held, write)

    def _is_quick(self, fresh: VolumePayload) -> bool:
        """Return whether files are written, and removed, as fast as a thread begins: few of them,
        in memory, where no container may add others."""
        return self._may_mount and fresh.size <= payload.SMALL and len(fresh.files) <= _FEW_FILES

    async def _show_image(
        self, held: _MountedVolumes, name: str, source: ImageVolumeSource
    ) -> None:
        """Mount an image, as late as the kubelet: a failure to pull it is one of the containers
        that mount it. Raises ImageFailure, VolumeFailure or OSError."""
        if name in held.images:
            return
        pod = held.pod
        secrets = await self._pull_secrets.of(pod) if pod.spec.imagePullSecrets else ()
        policy = image_volume.pull_policy(source)
        image = await self._images.resolve(source.reference, policy, secrets, lambda: None)
        if image.is_host:
            raise VolumeFailure("FailedMount", 'the image "host" cannot be a volume')
        directory = self._directory / pod.metadata.uid

        def show() -> Path:
            self._images.hold_volume(image.id, directory, name)
            place = directory / "volumes" / name
            return image_volume.mount(place, image.layers, may_mount=self._may_mount)

        held.images[name] = await self._do(held, show)

    def _make_once(self, pod: Pod, volume: Volume) -> None:
        if volume.hostPath is not None:
            path = str(self._kubelet.on_machine(volume.hostPath.path))
            host_path.check(msgspec.structs.replace(volume.hostPath, path=path))
        elif volume.emptyDir is not None:
            self._make_empty(pod, volume.emptyDir, self.place(pod, volume.name))
        else:
            raise _unknown(volume)

    def _make_empty(self, pod: Pod, source: EmptyDirVolumeSource, place: Path) -> None:
        medium = empty_dir.whole_medium(source, pod)
        if medium == "" or (medium == empty_dir.MEMORY and not self._may_mount):
            empty_dir.make_on_disk(place, _group(pod))
            return
        if not self._may_mount:
            raise VolumeFailure(
                "FailedMount",
                "huge pages need the right to mount, which the agent does not have",
            )
        empty_dir.mount_in_memory(place, medium, _group(pod), self._size_in_memory(pod, source))

    def _size_in_memory(self, pod: Pod, source: EmptyDirVolumeSource) -> int:
        limit = amounts.of_pod(pod, pids_limit=0).memory_limit or 0
        memory = self._this.node.status.allocatable.get("memory")
        return empty_dir.size_in_memory(source, limit, memory.value() if memory else 0)

    async def _mount_in_memory(self, pod: Pod, volume: Volume) -> None:
        """Have a volume in memory mounted, unless it is. Raises RuntimeFailure."""
        source = volume.emptyDir
        if self._mounter is None or source is None or not empty_dir.is_mountable(pod, volume):
            return
        group = _group(pod)
        await self._mounter.mount_memory(
            self.place(pod, volume.name),
            size=self._size_in_memory(pod, source),
            mode=empty_dir.mode_in_memory(group),
            group=group,
        )

    async def unmount(self, uid: str) -> None:
        self._following.release(uid)
        held = self._held.pop(uid, None)
        await self._storage.unmount(uid)
        if held is None:
            if any(map(os.path.lexists, self._places(uid))):
                await _whole(_REMOVALS, self._take_down, uid)
            else:
                self._images.release_volumes(uid)
            return
        held.gone = True
        async with held.disk:
            await _whole(_REMOVALS, self._take_down, uid)

    def _take_down(self, uid: str) -> None:
        for place in self._places(uid):
            if os.path.lexists(place):
                mounts.take_down(place)
        self._images.release_volumes(uid)

    def _places(self, uid: str) -> tuple[Path, ...]:
        """Return the directories with volumes of a pod."""
        return (
            # The directory for bind mounts of earlier releases.
            self._directory / uid / "subpaths",
            self._directory / uid / "volumes",
            self._memory / uid,
        )

    async def _do(self, held: _MountedVolumes, work: Callable[..., T], *arguments: object) -> T:
        """Work on the disk to its end, even if the caller is cancelled: after an unmount nothing
        may be created."""
        async with held.disk:
            if held.gone:
                raise VolumeFailure("FailedMount", "the pod is gone")
            return await _whole(_WORK, work, *arguments)

    # Updates.

    def _changed(self, uid: str, what: ConfigObjectKey) -> None:
        held, known = self._held.get(uid), self._following.watched(what)
        if held is None or known is None:
            return
        version = "" if known.object is None else known.object.metadata.resourceVersion
        if any(shown.get(what, version) != version for shown in held.shown.values()):
            self._refresh_soon(uid, held)

    def _refresh_soon(self, uid: str, held: _MountedVolumes) -> None:
        """Update files, immediately if that is cheap. An object with very many keys that changes
        all the time would otherwise use all of the node's time; the kubelet takes up to a
        minute."""
        due = held.refreshed + min(held.refresh_took / _REFRESHING, _LATEST)
        delay = due - self._clock.monotonic()
        if delay > 0:
            self._stale.add_later(uid, delay)
        else:
            self._stale.add(uid)

    async def _refresh(self) -> None:
        while True:
            uid = await self._stale.get()
            try:
                if held := self._held.get(uid):
                    begun = self._clock.monotonic()
                    await self._follow(held)
                    held.refreshed = self._clock.monotonic()
                    held.refresh_took = held.refreshed - begun
            except VolumeFailure:
                self._stale.retry(uid)
            else:
                self._stale.forget(uid)
            finally:
                self._stale.done(uid)

    async def _follow(self, held: _MountedVolumes) -> None:
        volumes = [each for each in held.pod.spec.volumes if payload.of(each)]
        try:
            await self._bring_up_to_date(held, volumes)
        except VolumeFailure as error:
            # The files stay as they are until all objects exist again. Usually they never do,
            # because their namespace is being deleted, so this is logged once.
            if not (held.outdated or held.gone):
                uid = held.pod.metadata.uid
                log.info("volume not refreshed pod=%s error=%s; retrying", uid, error)
            held.outdated = True
            raise
        held.outdated = False

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(_RENEWAL)
            now = self._clock.now()
            for uid, held in self._held.items():
                tokens = [token for found in held.tokens.values() for token in found]
                if any(token.is_old(now) for token in tokens):
                    self._refresh_soon(uid, held)

    def _pod(self, uid: str) -> Pod | None:
        held = self._held.get(uid)
        return None if held is None or held.gone else held.pod

    # Mounts of containers.

    def place(self, pod: Pod, name: str) -> Path:
        """Return the path of a volume on this machine."""
        for volume in pod.spec.volumes:
            if volume.name == name:
                if volume.hostPath is not None:
                    return self._kubelet.on_machine(volume.hostPath.path)
                if _is_stored(volume):
                    return self._stored(pod, name)
                if volume.image is not None:
                    return self._image_place(pod, name)
                base = self._memory if payload.of(volume) else self._directory
                return base / pod.metadata.uid / "volumes" / name
        raise ConfigFailure(f'volume "{name}" not found')

    def _image_place(self, pod: Pod, name: str) -> Path:
        held = self._held.get(pod.metadata.uid)
        if held is None or name not in held.images:
            raise ConfigFailure(f'volume "{name}" is not mounted')
        return held.images[name]

    def _stored(self, pod: Pod, name: str) -> Path:
        record = self._storage.find(pod.metadata.uid, name)
        if record is None:
            raise ConfigFailure(f'volume "{name}" is not mounted')
        return Path(record.path)

    def devices_of(self, pod: Pod, container: Container) -> list[ContainerDevice]:
        """Return the block volumes of a container."""
        found = []
        for wanted in container.volumeDevices:
            record = self._storage.find(pod.metadata.uid, wanted.name)
            if record is None:
                raise ConfigFailure(f'volume "{wanted.name}" is not mounted')
            permissions = "rm" if record.is_read_only else "rwm"
            found.append(
                ContainerDevice(
                    container_path=wanted.devicePath,
                    host_path=record.path,
                    permissions=permissions,
                )
            )
        return found

    async def mounts_of(
        self, pod: Pod, container: Container, env: Sequence[tuple[str, str]]
    ) -> list[ContainerMount]:
        volumes = {volume.name: volume for volume in pod.spec.volumes}
        found = []
        values = dict(env)
        for wanted in container.volumeMounts:
            volume = volumes.get(wanted.name)
            if volume is None:
                raise ConfigFailure(
                    f'cannot find volume "{wanted.name}" to mount into container "{container.name}"'
                )
            part = subpath.subpath_of(wanted, values)
            if volume.image is not None:
                await self._show_image(self._hold(pod), volume.name, volume.image)
            place = self.place(pod, volume.name)
            # Again: the mount ends with a supervisor that died.
            await self._mount_in_memory(pod, volume)
            if part or volume.hostPath is not None:
                await self._do(self._hold(pod), self._prepare, pod, volume, part, container.name)
            if wanted.mountPropagation == "Bidirectional" and self._may_mount:
                await self._share(self._hold(pod), place)
            shown = _shown(wanted, volume, place, part, self._is_read_only(pod, volume))
            found.append(shown)
        return found

    async def _share(self, held: _MountedVolumes, place: Path) -> None:
        """Share the kubelet's directory with a container that mounts volumes in it."""
        try:
            await self._do(held, self._kubelet.share, place)
        except OSError as error:
            raise ConfigFailure(f"cannot share {place} with the machine: {error}") from error

    def _is_read_only(self, pod: Pod, volume: Volume) -> bool:
        if not _is_stored(volume):
            return payload.of(volume) or volume.image is not None
        record = self._storage.find(pod.metadata.uid, volume.name)
        return record is not None and record.is_read_only

    def _prepare(self, pod: Pod, volume: Volume, part: str, container: str) -> None:
        """Create missing subPaths of a container."""
        place = self.place(pod, volume.name)
        if volume.hostPath is not None and not place.exists():
            # A missing path becomes a directory, as in all container engines.
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not part:
            return
        what = f'for volumeMount "{volume.name}" of container "{container}"'
        step = "prepare subPath"
        try:
            if not subpath.exists(place, part):
                step = "create subPath directory"
                subpath.make(place, part)
        except OSError as error:
            log.warning("no subPath pod=%s error=%r", pod.metadata.uid, str(error))
            raise ConfigFailure(f"failed to {step} {what}") from error

    # Limits.

    async def excess(
        self, pod: Pod, written: Mapping[str, Sequence[Path]], shared: Sequence[Path]
    ) -> str:
        """Return why the pod must be evicted for its disk usage, with the kubelet's message; empty
        if it stays.

        `written` are by container the directories that it writes outside of volumes: its layer and
        its logs. `shared` are directories whose files are mounted in containers, such as /etc/hosts
        and termination logs, to which they can write any amount (CVE-2020-8557). It is fast enough
        to be called every ten seconds.
        """
        held = self._held.get(pod.metadata.uid)
        if held is None or not usage.has_storage_limit(pod):
            return ""
        begun = self._clock.monotonic()
        if (begun - held.looked_at) * _LOOKING < held.look_took:
            return ""
        empty = [each for each in pod.spec.volumes if self._on_disk(each)]
        found = await asyncio.get_running_loop().run_in_executor(
            _LOOKS,
            lambda: usage.excess(
                pod,
                {each.name: usage.disk_usage([self.place(pod, each.name)]) for each in empty},
                {name: usage.disk_usage(directories) for name, directories in written.items()},
                usage.top_level_usage(shared),
            ),
        )
        held.looked_at = self._clock.monotonic()
        held.look_took = held.looked_at - begun
        return found

    def empty_directories(self, pod: Pod) -> list[Path]:
        """Return the paths of its emptyDir volumes that are on disk."""
        return [self.place(pod, each.name) for each in pod.spec.volumes if self._on_disk(each)]

    def _on_disk(self, volume: Volume) -> bool:
        source = volume.emptyDir
        return source is not None and (source.medium == "" or not self._may_mount)

    def _tell_of_shortfalls(self, pod: Pod) -> None:
        if self._may_mount:
            return
        if (group := _group(pod)) >= 0 and not _has_subordinate_ids():
            text = f"cannot change the group of volumes to {group}: the agent is not root"
            self._events.record(pod, "Warning", "NotEnforced", text)
        for volume in pod.spec.volumes:
            if text := empty_dir.memory_shortfall(pod, volume, self._mounter):
                self._events.record(pod, "Warning", "NotEnforced", text)


def _has_subordinate_ids() -> bool:
    from kedge.supervisor.files import mapped

    return mapped.is_available()


async def _whole(pool: Executor, work: Callable[..., T], *arguments: object) -> T:
    """Run work in a thread to its end, even if the caller is cancelled."""
    future = asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await future
        raise


def _words(error: Exception) -> str:
    return error.message if isinstance(error, StatusError) else str(error)


def _group(pod: Pod) -> int:
    security = pod.spec.securityContext
    return -1 if security is None or security.fsGroup is None else security.fsGroup


def _is_stored(volume: Volume) -> bool:
    """Return whether a volume has a driver or a PersistentVolume."""
    return (
        volume.persistentVolumeClaim is not None
        or volume.ephemeral is not None
        or volume.csi is not None
        or volume.nfs is not None
    )


def _shown(
    wanted: VolumeMount, volume: Volume, place: Path, part: str, is_read_only: bool
) -> ContainerMount:
    path = wanted.mountPath
    recursive = wanted.recursiveReadOnly in ("Enabled", "IfPossible")
    return ContainerMount(
        container_path=path if path.startswith("/") else f"/{path}",
        host_path=str(place),
        part=part,
        read_only=wanted.readOnly or is_read_only,
        recursive_read_only=wanted.readOnly and recursive,
        propagation=wanted.mountPropagation or "None",
    )


def _unknown(volume: Volume) -> VolumeFailure:
    given = msgspec.to_builtins(volume, enc_hook=str)
    kind = next((each for each in given if each != "name"), "nothing")
    return VolumeFailure(
        "FailedMount",
        f"kedge has no volumes of the kind {kind}; it has persistentVolumeClaim, ephemeral, csi,"
        " nfs, image, emptyDir, hostPath, configMap, secret, projected and downwardAPI",
    )
