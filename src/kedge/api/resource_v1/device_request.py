"""The devices that a claim asks for: requests, selectors, constraints, configuration."""

from collections.abc import Mapping, Sequence

from msgspec import field

from kedge.api.model import Json, Model
from kedge.machinery.quantity import Quantity

EXACT_COUNT = "ExactCount"
ALL = "All"
ALLOCATION_MODES = (ALL, EXACT_COUNT)
EXISTS = "Exists"
EQUAL = "Equal"
NO_EXECUTE = "NoExecute"
NO_SCHEDULE = "NoSchedule"
TAINT_EFFECTS = (NO_EXECUTE, NO_SCHEDULE, "None")


class CELDeviceSelector(Model):
    """A condition on a device, written in CEL."""

    __required__ = ("expression",)

    expression: str = ""
    """An expression about the variable `device` that is true of the wanted devices."""


class DeviceSelector(Model):
    """A condition on a device."""

    cel: CELDeviceSelector | None = None
    """The condition in CEL."""


class DeviceToleration(Model):
    """A taint of a device that does not matter to the claim."""

    key: str = ""
    """The key of the taint; empty matches all keys, with the operator Exists."""
    operator: str = ""
    """Exists or Equal; Equal is the default."""
    value: str = ""
    """The value of the taint, for Equal."""
    effect: str = ""
    """The effect of the taint; empty matches all effects."""
    tolerationSeconds: int | None = None
    """How long a NoExecute taint is tolerated; without it forever."""


class CapacityRequirements(Model):
    """How much of a device's capacity is wanted."""

    requests: Mapping[str, Quantity] = {}
    """Amounts by the name of the capacity."""


class ExactDeviceRequest(Model):
    """A request for devices of one class."""

    __required__ = ("deviceClassName",)

    deviceClassName: str = ""
    """The class of the devices."""
    selectors: Sequence[DeviceSelector] = ()
    """Conditions that each device must fulfil."""
    allocationMode: str = ""
    """ExactCount or All."""
    count: int = 0
    """How many devices, with the mode ExactCount."""
    adminAccess: bool | None = None
    """Whether the devices are used for maintenance, though others may have them."""
    tolerations: Sequence[DeviceToleration] = ()
    """Taints that do not matter."""
    capacity: CapacityRequirements | None = None
    """How much of each device is wanted."""


class DeviceSubRequest(Model):
    """One alternative of a request."""

    __required__ = ("name", "deviceClassName")

    name: str = ""
    """Name of the alternative, unique in its request."""
    deviceClassName: str = ""
    """The class of the devices."""
    selectors: Sequence[DeviceSelector] = ()
    """Conditions that each device must fulfil."""
    allocationMode: str = ""
    """ExactCount or All."""
    count: int = 0
    """How many devices, with the mode ExactCount."""
    tolerations: Sequence[DeviceToleration] = ()
    """Taints that do not matter."""
    capacity: CapacityRequirements | None = None
    """How much of each device is wanted."""


class DeviceRequest(Model):
    """A request for devices: either exactly this, or the first alternative that can be had."""

    __required__ = ("name",)

    name: str = ""
    """Name of the request; containers and configuration refer to it."""
    exactly: ExactDeviceRequest | None = None
    """The devices, without alternatives."""
    firstAvailable: Sequence[DeviceSubRequest] = ()
    """Alternatives, the best one first."""


def alternatives(request: DeviceRequest) -> Sequence[ExactDeviceRequest | DeviceSubRequest]:
    """Return the devices that a request can get; a request without alternatives has one."""
    if request.firstAvailable:
        return request.firstAvailable
    return [request.exactly] if request.exactly is not None else []


class DeviceConstraint(Model):
    """A condition on all devices of some requests together."""

    requests: Sequence[str] = ()
    """The requests; empty means all."""
    matchAttribute: str | None = None
    """An attribute that must be the same on all devices."""
    distinctAttribute: str | None = None
    """An attribute that must differ from device to device."""


class OpaqueDeviceConfiguration(Model):
    """Parameters that only the driver understands."""

    __required__ = ("driver", "parameters")

    driver: str = ""
    """Name of the driver."""
    parameters: Json = None
    """The parameters, an object of the driver's own kind."""


class DeviceClaimConfiguration(Model):
    """Configuration for the devices of some requests."""

    requests: Sequence[str] = ()
    """The requests; empty means all."""
    opaque: OpaqueDeviceConfiguration | None = None
    """Parameters for a driver."""


class DeviceClaim(Model):
    """The devices that a claim asks for."""

    requests: Sequence[DeviceRequest] = ()
    """The requests; all of them must be met."""
    constraints: Sequence[DeviceConstraint] = ()
    """Conditions on several devices together."""
    config: Sequence[DeviceClaimConfiguration] = ()
    """Configuration of the devices."""


class ResourceClaimSpec(Model):
    """The desired state of a claim. Cannot be changed."""

    devices: DeviceClaim = field(default_factory=DeviceClaim)
    """The devices that the claim asks for."""
