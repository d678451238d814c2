"""The volumes of pods: made, kept up to date, shown to containers, taken down."""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kedge.api.core_v1.container import Container, VolumeMount
from kedge.api.core_v1.pod import Pod
from kedge.api.core_v1.volume import Volume
from kedge.client.workqueue import WorkQueue
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.downward import Surroundings
from kedge.node.expansion import strictly_expanded
from kedge.node.parts import ConfigFailure, ThisNode, VolumeFailure
from kedge.node.runtime.runtime import Mount
from kedge.node.sources import Following, Sources, Token
from kedge.node.volumes import empty_dir, host_path, layout, payload, subpath
from kedge.node.volumes.layout import Ownership
from kedge.node.volumes.payload import Payloads
from kedge.supervisor import libc

log = logging.getLogger(__name__)

_SIZE_OF_MEMORY: Final = "size=256m"
_RENEWAL: Final = 60.0
"""Seconds between looks at whether tokens have grown old."""


class PodVolumes:
    """All volumes of one node's pods. Fulfils parts.Volumes."""

    def __init__(
        self,
        directory: Path,
        memory: Path,
        sources: Sources,
        following: Following,
        this: ThisNode,
        clock: Clock,
        *,
        may_mount: bool,
    ) -> None:
        self._directory = directory
        self._memory = memory
        self._payloads = Payloads(sources, clock)
        self._following = following
        self._this = this
        self._clock = clock
        self._may_mount = may_mount
        self._pods: dict[str, Pod] = {}
        self._tokens: dict[tuple[str, str], list[Token]] = {}
        self._stale: WorkQueue[str] = WorkQueue(clock)

    def open(self) -> None:
        """Have a place in memory for what must not be on a disk, where that can be had."""
        self._memory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._may_mount and not os.path.ismount(self._memory):
            data = f"mode=0700,{_SIZE_OF_MEMORY}"
            flags = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
            libc.mount("tmpfs", str(self._memory), "tmpfs", flags, data)

    async def run(self) -> None:
        """For ever: let files follow what they are made of, and renew tokens."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._refresh())
            tasks.create_task(self._renew())

    async def mount(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid not in self._pods:
            following = payload.references(pod)
            self._following.hold(uid, following, lambda: self._stale.add(uid))
        self._pods[uid] = pod
        for volume in pod.spec.volumes:
            await self._mount(pod, volume)

    async def _mount(self, pod: Pod, volume: Volume) -> None:
        place, group = self.place(pod, volume.name), _group(pod)
        try:
            if payload.of(volume):
                await self._fill(pod, volume, place, group)
            elif volume.hostPath is not None:
                host_path.check(volume.hostPath)
            elif volume.emptyDir is not None:
                empty_dir.make(place, volume.emptyDir, group, may_mount=self._may_mount)
            else:
                raise _unknown(volume)
        except StatusError as error:
            text = f'volume "{volume.name}": {error.message}'
            raise VolumeFailure("FailedMount", text) from error
        except OSError as error:
            raise VolumeFailure("FailedMount", f'volume "{volume.name}": {error}') from error

    async def _fill(self, pod: Pod, volume: Volume, place: Path, group: int) -> None:
        known = self._tokens.get((pod.metadata.uid, volume.name), [])
        fresh = await self._payloads.collect(pod, volume, self._around(pod), known)
        self._tokens[pod.metadata.uid, volume.name] = fresh.tokens
        layout.write(place, fresh.files, self._clock.now(), Ownership(group))

    def _around(self, pod: Pod) -> Surroundings:
        return Surroundings(allocatable=self._this.node.status.allocatable)

    def place(self, pod: Pod, name: str) -> Path:
        """Where a volume is on this machine."""
        for volume in pod.spec.volumes:
            if volume.name == name:
                if volume.hostPath is not None:
                    return Path(volume.hostPath.path)
                base = self._memory if payload.of(volume) else self._directory
                return base / pod.metadata.uid / "volumes" / name
        raise ConfigFailure(f'volume "{name}" not found')

    async def mounts_of(
        self, pod: Pod, container: Container, env: Sequence[tuple[str, str]]
    ) -> list[Mount]:
        return [
            self._mount_of(pod, container, index, dict(env))
            for index in range(len(container.volumeMounts))
        ]

    def _mount_of(self, pod: Pod, container: Container, index: int, env: dict[str, str]) -> Mount:
        wanted = container.volumeMounts[index]
        volume = next((v for v in pod.spec.volumes if v.name == wanted.name), None)
        if volume is None:
            raise ConfigFailure(f'volume "{wanted.name}" not found')
        place = self.place(pod, volume.name)
        if part := _part(wanted, env):
            name = f"{container.name}-{index}"
            place = self._partial(pod, volume, place, part, name)
        elif volume.hostPath is not None and not place.exists():
            # What is not there is made a directory, as container engines always did.
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
        recursive = wanted.recursiveReadOnly in ("Enabled", "IfPossible")
        return Mount(
            container_path=_absolute(wanted.mountPath),
            host_path=str(place),
            read_only=wanted.readOnly or _only_readable(volume),
            recursive_read_only=wanted.readOnly and recursive,
            propagation=wanted.mountPropagation or "None",
        )

    def _partial(self, pod: Pod, volume: Volume, place: Path, part: str, name: str) -> Path:
        found = subpath.find(place, part, make=not _only_readable(volume))
        if not self._may_mount:
            return found
        target = self._directory / pod.metadata.uid / "subpaths" / volume.name / name
        return subpath.pin(found, place, target)

    async def unmount(self, uid: str) -> None:
        self._following.release(uid)
        self._pods.pop(uid, None)
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]
        for place in (self._directory / uid / "subpaths", self._directory / uid / "volumes"):
            take_down(place)
        await asyncio.to_thread(shutil.rmtree, self._memory / uid, ignore_errors=True)

    async def _refresh(self) -> None:
        while True:
            uid = await self._stale.get()
            try:
                if pod := self._pods.get(uid):
                    for volume in filter(payload.of, pod.spec.volumes):
                        await self._mount(pod, volume)
            except VolumeFailure as error:
                # What is shown stays as it was until what it is made of is whole again.
                log.info("volume not refreshed pod=%s error=%s", uid, error)
                self._stale.retry(uid)
            else:
                self._stale.forget(uid)
            finally:
                self._stale.done(uid)

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(_RENEWAL)
            now = self._clock.now()
            for (uid, _), tokens in self._tokens.items():
                if any(token.is_old(now) for token in tokens):
                    self._stale.add(uid)


def take_down(place: Path) -> None:
    """Unmount all that is mounted below and delete the directory, never what is mounted there."""
    for where in sorted(_mounts_below(place), reverse=True):
        with contextlib.suppress(OSError):
            libc.unmount(where)
    if left := list(_mounts_below(place)):
        raise VolumeFailure("FailedUnmount", f"{left[0]} is still in use")
    shutil.rmtree(place, ignore_errors=True)


def _mounts_below(place: Path) -> list[str]:
    prefix = f"{place}/"
    with open("/proc/self/mountinfo") as mounts:
        places = [line.split(" ", 5)[4].replace("\\040", " ") for line in mounts]
    return [each for each in places if each.startswith(prefix)]


def _group(pod: Pod) -> int:
    security = pod.spec.securityContext
    return -1 if security is None or security.fsGroup is None else security.fsGroup


def _part(wanted: VolumeMount, env: dict[str, str]) -> str:
    if not wanted.subPathExpr:
        return wanted.subPath
    part = strictly_expanded(wanted.subPathExpr, env)
    if part.startswith("/") or ".." in Path(part).parts:
        raise ConfigFailure(f"failed to prepare subPath for volumeMount {wanted.name!r}: {part}")
    return part


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _only_readable(volume: Volume) -> bool:
    return payload.of(volume)


def _unknown(volume: Volume) -> VolumeFailure:
    given = msgspec.to_builtins(volume, enc_hook=str)
    kind = next((each for each in given if each != "name"), "nothing")
    return VolumeFailure(
        "FailedMount",
        f'volume "{volume.name}": kedge has no volumes of the kind {kind}; it has emptyDir,'
        " hostPath, configMap, secret, projected and downwardAPI",
    )
