"""Eviction of pods that exceed their limits of local storage."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.clock import Clock, every
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.runtime.runtime import RuntimeContainer

PERIOD_SECONDS: Final = 10.0
"""Seconds between two checks, as in the kubelet."""
_CRITICAL_PRIORITY: Final = 2_000_000_000
"""Pods of this priority and above are critical and are not evicted."""


class EvictablePods(Protocol):
    """The pods of a node."""

    def active(self) -> Iterable[Pod]:
        """Return the pods that use resources of the node."""
        ...

    def observed(self, uid: str) -> PodRuntimeState:
        """Return the sandboxes and containers of a pod."""
        ...

    def evict(self, uid: str, message: str) -> None:
        """End a pod at once, with phase Failed and reason Evicted."""
        ...


class MeasuredVolumes(Protocol):
    """The volumes of pods, with their usage."""

    async def excess(
        self, pod: Pod, written: Mapping[str, Sequence[Path]], shared: Sequence[Path]
    ) -> str:
        """Return why a pod must be evicted; empty if it stays. `written` are by container the
        directories that it writes outside of volumes, `shared` those with small files of the
        pod."""
        ...


class WritablePathLookup(Protocol):
    """The directories in which containers write outside of volumes."""

    def layers(self, container: str) -> Sequence[Path]:
        """Return the writable layers of a container id."""
        ...

    def shared(self, uid: str, sandboxes: Sequence[str]) -> Sequence[Path]:
        """Return the directories with the small files of a pod with these sandboxes."""
        ...


class LocalStorageEviction:
    """Evicts pods periodically. The owner must `run` it."""

    def __init__(
        self,
        pods: EvictablePods,
        volumes: MeasuredVolumes,
        paths: WritablePathLookup,
        clock: Clock,
    ) -> None:
        self._pods = pods
        self._volumes = volumes
        self._paths = paths
        self._clock = clock

    async def run(self) -> None:
        await every(PERIOD_SECONDS, self.check, self._clock)

    async def check(self) -> None:
        """Evict every pod that exceeds a limit."""
        for pod in list(self._pods.active()):
            if (pod.spec.priority or 0) >= _CRITICAL_PRIORITY:
                continue
            uid = pod.metadata.uid
            observed = self._pods.observed(uid)
            shared = self._paths.shared(uid, [each.id for each in observed.sandboxes])
            written = written_by(observed.containers, self._paths)
            if message := await self._volumes.excess(pod, written, shared):
                self._pods.evict(uid, message)


def written_by(
    containers: Iterable[RuntimeContainer], paths: WritablePathLookup
) -> dict[str, list[Path]]:
    """Return the directories that containers write outside of volumes, by container name: one for
    the logs of all attempts, one layer for each."""
    found: dict[str, list[Path]] = {}
    for container in containers:
        places = found.setdefault(container.name, [])
        logs = Path(container.log_path).parent
        if container.log_path and logs not in places:
            places.append(logs)
        places += paths.layers(container.id)
    return found
