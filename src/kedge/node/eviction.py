"""Eviction: pods that keep more on the disk than they may have to go."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.clock import Clock, every
from kedge.node.observed import Observed
from kedge.node.runtime.runtime import Container

PERIOD: Final = 10.0
"""Seconds between two looks at all pods, as upstream takes them."""
_CRITICAL_PRIORITY: Final = 2_000_000_000
"""From here on pods are as dear as the node itself, and stay."""


class Evictable(Protocol):
    """The pods of a node."""

    def active(self) -> Iterable[Pod]:
        """Those that use something of the node."""
        ...

    def observed(self, uid: str) -> Observed:
        """What the runtime has of a pod."""
        ...

    def evict(self, uid: str, message: str) -> None:
        """End a pod at once: it failed, the reason is Evicted."""
        ...


class Measured(Protocol):
    """The volumes of pods, as far as they say how much is in them."""

    async def excess(
        self, pod: Pod, written: Mapping[str, Sequence[Path]], shared: Sequence[Path]
    ) -> str:
        """Why a pod has to go; empty if it may stay. `written` says for each container where what
        it writes outside of volumes is, `shared` where small files are that all of them see."""
        ...


class Places(Protocol):
    """Where the node keeps what pods write outside of volumes."""

    def layers(self, container: str) -> Sequence[Path]:
        """What a container, by its id, writes to its root."""
        ...

    def shared(self, uid: str, sandboxes: Sequence[str]) -> Sequence[Path]:
        """Directories with files that containers of a pod, with these sandboxes, see."""
        ...


class Eviction:
    """Looks at what pods keep, now and then. Somebody must `run` it."""

    def __init__(
        self,
        pods: Evictable,
        volumes: Measured,
        places: Places,
        clock: Clock,
    ) -> None:
        self._pods = pods
        self._volumes = volumes
        self._places = places
        self._clock = clock

    async def run(self) -> None:
        await every(PERIOD, self.look, self._clock)

    async def look(self) -> None:
        """Evict every pod that uses too much."""
        for pod in list(self._pods.active()):
            if (pod.spec.priority or 0) >= _CRITICAL_PRIORITY:
                continue
            uid = pod.metadata.uid
            observed = self._pods.observed(uid)
            shared = self._places.shared(uid, [each.id for each in observed.sandboxes])
            written = self._written(observed.containers)
            if message := await self._volumes.excess(pod, written, shared):
                self._pods.evict(uid, message)

    def _written(self, containers: Iterable[Container]) -> dict[str, list[Path]]:
        """By name: logs of all attempts are in one directory, layers in one for each."""
        found: dict[str, list[Path]] = {}
        for container in containers:
            places = found.setdefault(container.name, [])
            logs = Path(container.log_path).parent
            if container.log_path and logs not in places:
                places.append(logs)
            places += self._places.layers(container.id)
        return found
