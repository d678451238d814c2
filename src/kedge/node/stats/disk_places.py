"""PodDiskPlaces: the directories of a node that its pods write to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.host.eviction import WritablePathLookup, written_by
from kedge.node.pod.runtime_cache import PodRuntimeState


class EmptyDirectories(Protocol):
    """The emptyDir volumes of pods (kedge.node.volumes.volumes)."""

    def empty_directories(self, pod: Pod) -> Sequence[Path]: ...


class PodDiskPlaces:
    """The directories that count for limits of ephemeral-storage. Fulfils DiskPlaces."""

    def __init__(self, volumes: EmptyDirectories, paths: WritablePathLookup) -> None:
        self._volumes = volumes
        self._paths = paths

    def of_containers(self, observed: PodRuntimeState) -> Mapping[str, Sequence[Path]]:
        """Return layers and logs, by container."""
        return written_by(observed.containers, self._paths)

    def of_pod(self, pod: Pod, observed: PodRuntimeState) -> tuple[Sequence[Path], Sequence[Path]]:
        """Return volumes, and directories with small files of the pod."""
        shared = self._paths.shared(pod.metadata.uid, [each.id for each in observed.sandboxes])
        return self._volumes.empty_directories(pod), shared
