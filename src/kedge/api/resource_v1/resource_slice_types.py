"""The spec of a ResourceSlice: a pool, the nodes that reach it, and its devices."""

from collections.abc import Mapping, Sequence

import msgspec

from kedge.api.core_v1.pod.affinity import NodeSelector
from kedge.api.model import Model, Time
from kedge.machinery.quantity import Quantity

ZERO = Quantity.from_value(0)


class ResourcePool(Model):
    """A set of devices that a driver publishes in one or several slices."""

    __required__ = ("name", "generation", "resourceSliceCount")

    name: str = ""
    """Name of the pool; for local devices often that of the node."""
    generation: int = msgspec.field(default_factory=int)
    """Counts the changes of the pool; slices of older generations are obsolete."""
    resourceSliceCount: int = msgspec.field(default_factory=int)
    """How many slices the pool has in this generation."""


class DeviceAttribute(Model):
    """A property of a device: exactly one of these values."""

    int_: int | None = msgspec.field(default=None, name="int")
    """A whole number."""
    bool_: bool | None = msgspec.field(default=None, name="bool")
    """True or false."""
    string: str | None = None
    """A text of at most 64 characters."""
    version: str | None = None
    """A semantic version."""
    ints: Sequence[int] = ()
    """Several whole numbers."""
    bools: Sequence[bool] = ()
    """Several truth values."""
    strings: Sequence[str] = ()
    """Several texts."""
    versions: Sequence[str] = ()
    """Several semantic versions."""


class CapacityRequestPolicyRange(Model):
    """The range of amounts that a request may consume."""

    __required__ = ("min",)

    min: Quantity | None = None
    """The smallest amount; smaller requests are rounded up to it."""
    max: Quantity | None = None
    """The largest amount."""
    step: Quantity | None = None
    """The amounts are min plus a multiple of this."""


class CapacityRequestPolicy(Model):
    """How requests for a part of a capacity are rounded."""

    default: Quantity | None = None
    """The amount that a request consumes if it names none."""
    validValues: Sequence[Quantity] = ()
    """A list of valid amounts, ascending."""
    validRange: CapacityRequestPolicyRange | None = None
    """A range of valid amounts."""


class DeviceCapacity(Model):
    """An amount of something that a device has."""

    __required__ = ("value",)

    value: Quantity = ZERO
    """How much there is."""
    requestPolicy: CapacityRequestPolicy | None = None
    """How requests are rounded, if several claims may share the device."""


class Counter(Model):
    """An amount that several devices share."""

    __required__ = ("value",)

    value: Quantity = ZERO
    """How much there is, or how much a device consumes."""


class CounterSet(Model):
    """Named amounts that the devices of a pool share."""

    __required__ = ("name", "counters")

    name: str = ""
    """Name of the set, unique in its pool."""
    counters: Mapping[str, Counter] = {}
    """The amounts, by name."""


class DeviceCounterConsumption(Model):
    """The amounts of one set of counters that a device consumes."""

    __required__ = ("counterSet", "counters")

    counterSet: str = ""
    """Name of the set."""
    counters: Mapping[str, Counter] = {}
    """The amounts, by name."""


class DeviceTaint(Model):
    """A mark on a device that keeps claims away unless they tolerate it."""

    __required__ = ("key", "effect")

    key: str = ""
    """The key, a label name."""
    value: str = ""
    """The value, a label value."""
    effect: str = ""
    """None, NoSchedule or NoExecute."""
    timeAdded: Time = ""
    """When the taint was added."""


class NodeAllocatableResourceMapping(Model):
    """How much of a node's own resource a device uses."""

    capacityKey: str | None = None
    """Name of the capacity that is multiplied."""
    allocationMultiplier: Quantity | None = None
    """The factor; with a capacity key it multiplies the capacity."""


class Device(Model):
    """One device that a claim can get."""

    __required__ = ("name",)

    name: str = ""
    """Name of the device, unique in its pool."""
    attributes: Mapping[str, DeviceAttribute] = {}
    """Properties, by name; a name without a domain belongs to the driver's."""
    capacity: Mapping[str, DeviceCapacity] = {}
    """Amounts, by name."""
    consumesCounters: Sequence[DeviceCounterConsumption] = ()
    """The shared amounts that the device consumes while it is allocated."""
    nodeName: str | None = None
    """The node that reaches the device, with perDeviceNodeSelection."""
    nodeSelector: NodeSelector | None = None
    """The nodes that reach the device, with perDeviceNodeSelection."""
    allNodes: bool | None = None
    """Whether all nodes reach the device, with perDeviceNodeSelection."""
    taints: Sequence[DeviceTaint] = ()
    """Marks that keep claims away."""
    bindsToNode: bool | None = None
    """Whether an allocation is good for the chosen node only."""
    bindingConditions: Sequence[str] = ()
    """Conditions that must be true in the claim's status before the pod is bound."""
    bindingFailureConditions: Sequence[str] = ()
    """Conditions that make the binding fail if they are true."""
    allowMultipleAllocations: bool | None = None
    """Whether several claims may share the device."""
    nodeAllocatableResourceMappings: Mapping[str, NodeAllocatableResourceMapping] = {}
    """The node's own resources that the device uses."""


class ResourceSliceSpec(Model):
    """A part of a pool."""

    __required__ = ("driver", "pool")

    driver: str = ""
    """Name of the driver that publishes the slice. Cannot be changed."""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    """The pool that the slice is a part of."""
    nodeName: str | None = None
    """The only node that reaches the devices. Cannot be changed."""
    nodeSelector: NodeSelector | None = None
    """The nodes that reach the devices."""
    allNodes: bool | None = None
    """Whether all nodes reach the devices."""
    devices: Sequence[Device] = ()
    """The devices."""
    perDeviceNodeSelection: bool | None = None
    """Whether each device names its nodes itself."""
    sharedCounters: Sequence[CounterSet] = ()
    """Amounts that the devices of the pool share."""
