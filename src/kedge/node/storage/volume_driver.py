"""The protocol of volume drivers, modelled on the node half of CSI.

Every call may be repeated with the same arguments, and must then succeed again without a further
effect. The caller holds a lock on the volume: no two calls for one volume overlap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol


class DriverError(Exception):
    """A call of a driver failed. The text is for the event on the pod."""

    def __init__(
        self, message: str, *, is_final: bool = False, is_infeasible: bool = False
    ) -> None:
        super().__init__(message)
        self.is_final = is_final or is_infeasible
        """Whether the driver certainly has no work in progress for the volume."""
        self.is_infeasible = is_infeasible
        """Whether the same call will fail again: the volume cannot grow so much."""


class DriverFeature(StrEnum):
    """An optional ability of a driver."""

    STAGES = "stages"
    """Volumes are staged once for all pods of the node."""
    EXPANDS = "expands"
    REPORTS_USAGE = "reports usage"
    MOUNTS_FOR_GROUP = "mounts for a group"
    """The driver itself gives the volume to the fsGroup of the pod."""
    SINGLE_NODE_MULTI_WRITER = "single node, multiple writers"
    """The driver distinguishes ReadWriteOnce and ReadWriteOncePod."""


@dataclass(frozen=True)
class DriverVolume:
    """A volume as its driver knows it."""

    driver: str
    handle: str
    name: str
    """The name of the PersistentVolume; of the pod's volume if it is inline."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    fs_type: str = ""
    mount_options: tuple[str, ...] = ()
    access_modes: tuple[str, ...] = ("ReadWriteOnce",)
    size: int = 0
    """Bytes; 0 if it is not known."""
    is_block: bool = False
    is_read_only: bool = False
    is_inline: bool = False
    made_on: str = ""
    """The node that made the data of a local volume; empty before the first mount."""


@dataclass(frozen=True)
class MountContext:
    """The further arguments of a call."""

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    publish_context: Mapping[str, str] = field(default_factory=dict)
    """The metadata of the volume's attachment."""
    pod_attributes: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Facts about the pod and its tokens, for `publish` only."""
    group: int = -1
    """The pod's fsGroup if the driver applies it; -1 for none."""


class VolumeUsage(NamedTuple):
    """Usage of one volume; -1 for what is not known."""

    capacity_bytes: int = -1
    used_bytes: int = -1
    available_bytes: int = -1
    inodes: int = -1
    inodes_used: int = -1
    inodes_free: int = -1


class VolumeDriver(Protocol):
    """One driver on one node. All methods raise DriverError."""

    name: str

    async def features(self) -> frozenset[DriverFeature]: ...

    async def stage(self, volume: DriverVolume, staging: Path, context: MountContext) -> None:
        """Make the volume ready at `staging`, a directory that exists; for a volume of mode
        Block too."""
        ...

    async def publish(
        self, volume: DriverVolume, staging: Path, target: Path, context: MountContext
    ) -> Path:
        """Make the volume available to one pod. The parent of `target` exists. Return the
        directory, or for a volume of mode Block the device; it need not be `target`."""
        ...

    async def unpublish(self, handle: str, target: Path) -> None:
        """Undo `publish`; nothing is left at `target`."""
        ...

    async def unstage(self, handle: str, staging: Path) -> None:
        """Undo `stage`; `staging` is an empty directory, or gone."""
        ...

    async def expand(
        self, volume: DriverVolume, path: Path, staging: Path, context: MountContext
    ) -> int:
        """Grow a published volume to `volume.size`; return its size."""
        ...

    async def usage(self, handle: str, path: Path, staging: Path) -> VolumeUsage: ...

    async def capacity(self, attributes: Mapping[str, str]) -> int:
        """Return the bytes for further volumes of a class with these parameters; -1 if the driver
        does not know."""
        ...

    async def delete(self, handle: str) -> None:
        """Delete the data of a volume that no pod uses."""
        ...
