"""The messages between a node agent and drivers for Dynamic Resource Allocation.

The messages of the API versions v1 and v1beta1 differ only in `share_id`. Fields numbered from
50029 on are kedge's own. Programs built without them skip them.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from kedge.deviceplugin.messages import Owner

V1: Final = "v1.DRAPlugin"
V1BETA1: Final = "v1beta1.DRAPlugin"
HEALTH: Final = "v1alpha1.DRAResourceHealth"
ENVIRONMENT: Final = "kedge.dra.v1.ContainerEnvironment"
"""A driver that names this among its services is sent the environment of containers."""
DRIVER_TYPE: Final = "DRAPlugin"
"""The type of a driver at its registration socket."""
KUBELET_DIRECTORY: Final = "/var/lib/kubelet"
REGISTRY: Final = "plugins_registry"
"""The directory of registration sockets, in the kubelet's directory."""
PLUGINS: Final = "plugins"
"""The directory of the directories of drivers, in the kubelet's directory."""
CDI: Final = "/var/run/cdi"
"""The machine's directory of CDI specs."""
OWN_CDI: Final = "cdi"
"""The node's own directory of CDI specs, in the kubelet's directory (kedge)."""


class ClaimContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container that uses a claim (kedge)."""

    owner: Annotated[Owner | None, 1] = None
    requests: Annotated[Sequence[str], 2] = ()
    """Requests of the claim that it uses; empty for all."""
    env: Annotated[Mapping[str, str], 3] = msgspec.field(default_factory=dict)
    """The effective variables that the pod's spec defines for the container."""
    env_error: Annotated[str, 4] = ""
    """Why the variables are not known yet."""


class ClaimReference(msgspec.Struct, frozen=True, kw_only=True):
    """Names a ResourceClaim."""

    namespace: Annotated[str, 1] = ""
    uid: Annotated[str, 2] = ""
    name: Annotated[str, 3] = ""
    containers: Annotated[Sequence[ClaimContainer], 50029] = ()
    """The containers of the pod that needs the claim, for drivers that ask for them."""


class ClaimsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Claims to prepare or to unprepare."""

    claims: Annotated[Sequence[ClaimReference], 1] = ()


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a prepared claim."""

    request_names: Annotated[Sequence[str], 1] = ()
    """Requests of the claim that it belongs to; empty for all."""
    pool_name: Annotated[str, 2] = ""
    device_name: Annotated[str, 3] = ""
    cdi_device_ids: Annotated[Sequence[str], 4] = ()
    """Names of CDI devices, such as `example.com/gadget=one`."""
    share_id: Annotated[str | None, 5] = None


class PrepareResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of preparing one claim."""

    devices: Annotated[Sequence[PreparedDevice], 1] = ()
    error: Annotated[str, 2] = ""


class PrepareResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A result for each claim, by its uid."""

    claims: Annotated[Mapping[str, PrepareResult], 1] = msgspec.field(default_factory=dict)


class UnprepareResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of unpreparing one claim."""

    error: Annotated[str, 1] = ""


class UnprepareResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A result for each claim, by its uid."""

    claims: Annotated[Mapping[str, UnprepareResult], 1] = msgspec.field(default_factory=dict)


# Health.

UNKNOWN_HEALTH: Final = 0
HEALTHY_DEVICE: Final = 1
UNHEALTHY_DEVICE: Final = 2


class DeviceIdentifier(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a driver."""

    pool_name: Annotated[str, 1] = ""
    device_name: Annotated[str, 2] = ""


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one device."""

    device: Annotated[DeviceIdentifier | None, 1] = None
    health: Annotated[int, 2] = UNKNOWN_HEALTH
    last_updated_time: Annotated[int, 3] = 0
    """Seconds since the epoch."""
    health_check_timeout_seconds: Annotated[int, 4] = 0
    """Seconds after which the health is unknown; 0 for the kubelet's default."""
    message: Annotated[str, 5] = ""


class HealthResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The health of all devices of a driver."""

    devices: Annotated[Sequence[DeviceHealth], 1] = ()
