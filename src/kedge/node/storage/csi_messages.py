"""The messages and methods of CSI that a node uses (package csi.v1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.methods import Method

STAGE_UNSTAGE: Final = 1
GET_VOLUME_STATS: Final = 2
EXPAND: Final = 3
SINGLE_NODE_MULTI_WRITER: Final = 5
VOLUME_MOUNT_GROUP: Final = 6
BYTES: Final = 1
INODES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiTopology:
    """Where a volume can be reached."""

    segments: Annotated[Mapping[str, str], 1] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfoResponse:
    """The answer to NodeGetInfo."""

    node_id: Annotated[str, 1] = ""
    max_volumes_per_node: Annotated[int, 2] = 0
    accessible_topology: Annotated[CsiTopology | None, 3] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcCapability:
    """The number of a capability."""

    type: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapability:
    """A capability of a driver on a node."""

    rpc: Annotated[RpcCapability | None, 1] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapabilitiesResponse:
    """The answer to NodeGetCapabilities."""

    capabilities: Annotated[Sequence[NodeCapability], 1] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MountCapability:
    """How a volume with a file system is mounted."""

    fs_type: Annotated[str, 1] = ""
    mount_flags: Annotated[Sequence[str], 2] = ()
    volume_mount_group: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiAccessMode:
    """The number of an access mode."""

    mode: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeCapability:
    """How a volume is used: either `block` or `mount`."""

    block: Annotated[Empty | None, 1] = None
    mount: Annotated[MountCapability | None, 2] = None
    access_mode: Annotated[CsiAccessMode | None, 3] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageVolumeRequest:
    """The arguments of NodeStageVolume."""

    volume_id: Annotated[str, 1] = ""
    publish_context: Annotated[Mapping[str, str], 2] = field(default_factory=dict)
    staging_target_path: Annotated[str, 3] = ""
    volume_capability: Annotated[VolumeCapability | None, 4] = None
    secrets: Annotated[Mapping[str, str], 5] = field(default_factory=dict, repr=False)
    volume_context: Annotated[Mapping[str, str], 6] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishVolumeRequest:
    """The arguments of NodePublishVolume."""

    volume_id: Annotated[str, 1] = ""
    publish_context: Annotated[Mapping[str, str], 2] = field(default_factory=dict)
    staging_target_path: Annotated[str, 3] = ""
    target_path: Annotated[str, 4] = ""
    volume_capability: Annotated[VolumeCapability | None, 5] = None
    readonly: Annotated[bool, 6] = False
    secrets: Annotated[Mapping[str, str], 7] = field(default_factory=dict, repr=False)
    volume_context: Annotated[Mapping[str, str], 8] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePathRequest:
    """The arguments of NodeUnpublishVolume and NodeUnstageVolume."""

    volume_id: Annotated[str, 1] = ""
    path: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRange:
    """The size that a volume must have."""

    required_bytes: Annotated[int, 1] = 0
    limit_bytes: Annotated[int, 2] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandVolumeRequest:
    """The arguments of NodeExpandVolume."""

    volume_id: Annotated[str, 1] = ""
    volume_path: Annotated[str, 2] = ""
    capacity_range: Annotated[CapacityRange | None, 3] = None
    staging_target_path: Annotated[str, 4] = ""
    volume_capability: Annotated[VolumeCapability | None, 5] = None
    secrets: Annotated[Mapping[str, str], 6] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandVolumeResponse:
    """The new size."""

    capacity_bytes: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeStatsRequest:
    """The arguments of NodeGetVolumeStats."""

    volume_id: Annotated[str, 1] = ""
    volume_path: Annotated[str, 2] = ""
    staging_target_path: Annotated[str, 3] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiUsage:
    """Usage in bytes or inodes."""

    available: Annotated[int, 1] = 0
    total: Annotated[int, 2] = 0
    used: Annotated[int, 3] = 0
    unit: Annotated[int, 4] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeStatsResponse:
    """The usage of a volume."""

    usage: Annotated[Sequence[CsiUsage], 1] = ()


_NODE: Final = "csi.v1.Node"
GET_INFO: Final = Method(_NODE, "NodeGetInfo", Empty, NodeInfoResponse)
GET_CAPABILITIES: Final = Method(_NODE, "NodeGetCapabilities", Empty, NodeCapabilitiesResponse)
STAGE: Final = Method(_NODE, "NodeStageVolume", StageVolumeRequest, Empty)
UNSTAGE: Final = Method(_NODE, "NodeUnstageVolume", VolumePathRequest, Empty)
PUBLISH: Final = Method(_NODE, "NodePublishVolume", PublishVolumeRequest, Empty)
UNPUBLISH: Final = Method(_NODE, "NodeUnpublishVolume", VolumePathRequest, Empty)
EXPAND_VOLUME: Final = Method(_NODE, "NodeExpandVolume", ExpandVolumeRequest, ExpandVolumeResponse)
GET_STATS: Final = Method(_NODE, "NodeGetVolumeStats", VolumeStatsRequest, VolumeStatsResponse)
