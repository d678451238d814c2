"""The status of a ResourceClaim: its allocation, the pods that use it, the state of its devices."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import field

from kedge.api.core_v1.pod.affinity import NodeSelector
from kedge.api.model import Condition, Json, Model, Time, keyed, listed_by
from kedge.api.resource_v1.device_request import DeviceToleration, OpaqueDeviceConfiguration
from kedge.machinery.quantity import Quantity

FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"
CONFIG_SOURCES = (FROM_CLAIM, FROM_CLASS)


class ResourceClaimConsumerReference(Model):
    """A consumer of the claim, in its namespace."""

    __required__ = ("resource", "name", "uid")

    apiGroup: str = ""
    """The group of the consumer's kind; empty for pods."""
    resource: str = ""
    """Kind of the consumer as it is in URLs, for instance pods."""
    name: str = ""
    """Name of the consumer."""
    uid: str = ""
    """Uid of the consumer."""


class DeviceRequestAllocationResult(Model):
    """One device that was allocated for one request."""

    __required__ = ("request", "driver", "pool", "device")

    request: str = ""
    """Name of the request; of an alternative, `request/alternative`."""
    driver: str = ""
    """Name of the driver."""
    pool: str = ""
    """Name of the pool."""
    device: str = ""
    """Name of the device."""
    adminAccess: bool | None = None
    """Whether the device was allocated for maintenance."""
    tolerations: Sequence[DeviceToleration] = ()
    """The tolerations of the request when the device was allocated."""
    bindingConditions: Sequence[str] = ()
    """Conditions that must be true before the pod is bound."""
    bindingFailureConditions: Sequence[str] = ()
    """Conditions that make the binding fail if they are true."""
    shareID: str | None = None
    """Tells several allocations of a shared device apart."""
    consumedCapacity: Mapping[str, Quantity] = {}
    """The amounts of a shared device that the allocation consumes."""


class DeviceAllocationConfiguration(Model):
    """Configuration for allocated devices, and its origin."""

    __required__ = ("source",)

    source: str = ""
    """FromClass or FromClaim."""
    requests: Sequence[str] = ()
    """The requests; empty means all."""
    opaque: OpaqueDeviceConfiguration | None = None
    """Parameters for a driver."""


class DeviceAllocationResult(Model):
    """The allocated devices and their configuration."""

    results: Sequence[DeviceRequestAllocationResult] = ()
    """The devices."""
    config: Sequence[DeviceAllocationConfiguration] = ()
    """Configuration from classes and from the claim."""


class AllocationResult(Model):
    """The result of an allocation."""

    devices: DeviceAllocationResult = field(default_factory=DeviceAllocationResult)
    """The allocated devices."""
    nodeSelector: NodeSelector | None = None
    """The nodes that reach the devices; without it all nodes do."""
    allocationTimestamp: Time = ""
    """When the claim was allocated; set only with binding conditions."""


class NetworkDeviceData(Model):
    """The state of a network device, from its driver."""

    interfaceName: str = ""
    """Name of the interface in the pod."""
    ips: Sequence[str] = ()
    """Addresses with the length of their network's prefix."""
    hardwareAddress: str = ""
    """The hardware address."""


class AllocatedDeviceStatus(Model):
    """The state of an allocated device, from its driver."""

    __required__ = ("driver", "pool", "device")

    driver: str = ""
    """Name of the driver."""
    pool: str = ""
    """Name of the pool."""
    device: str = ""
    """Name of the device."""
    shareID: str | None = None
    """Tells several allocations of a shared device apart."""
    conditions: Annotated[Sequence[Condition], listed_by("type")] = ()
    """Aspects of its state."""
    data: Json = None
    """Data of the driver's own kind."""
    networkData: NetworkDeviceData | None = None
    """Further state of a network device."""


class ResourceClaimStatus(Model):
    """The observed state of a claim."""

    allocation: AllocationResult | None = None
    """The allocated devices; unset while the claim waits."""
    reservedFor: Annotated[Sequence[ResourceClaimConsumerReference], keyed("uid")] = ()
    """The consumers that may use the claim now, at most 256."""
    devices: Annotated[
        Sequence[AllocatedDeviceStatus], listed_by("driver", "device", "pool", "shareID")
    ] = ()
    """The state of the devices, from their drivers."""
