"""Pools of devices as one node sees them: slices of the newest generation, complete or not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kedge.api.core_v1.node_selection import compiled
from kedge.api.core_v1.pod.affinity import NodeSelector
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.api.resource_v1.resource_slice_types import CounterSet, Device, ResourceSliceSpec

Labels = Mapping[str, str]


class PoolID(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    """Names one device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DevicePool(msgspec.Struct, frozen=True):
    """One pool; without slices if it cannot be used."""

    id: PoolID
    slices: Sequence[ResourceSlice] = ()
    """The slices with devices that the node may reach."""
    elsewhere: Sequence[ResourceSlice] = ()
    """The slices of the same generation for other nodes: their devices consume counters too."""
    counters: Mapping[str, CounterSet] = msgspec.field(default_factory=dict)
    is_incomplete: bool = False
    is_invalid: bool = False

    def devices(self) -> Iterator[tuple[ResourceSlice, Device]]:
        for each in self.slices:
            for device in each.spec.devices:
                yield each, device


class ResourceSliceIndex:
    """All slices, grouped so that the pools of a node are found without looking at all."""

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self._local: dict[str, list[ResourceSlice]] = {}
        self._shared: list[ResourceSlice] = []
        self._pools: dict[PoolID, list[ResourceSlice]] = {}
        for each in sorted(slices, key=lambda each: each.metadata.name):
            spec = each.spec
            self._pools.setdefault(_pool_id(spec), []).append(each)
            if spec.nodeName and not spec.sharedCounters:
                self._local.setdefault(spec.nodeName, []).append(each)
            else:
                self._shared.append(each)

    def pools(self, node: str, labels: Labels) -> list[DevicePool]:
        """Return the pools of a node by name; those with binding conditions come last."""
        found: dict[PoolID, list[ResourceSlice]] = {}
        for each in (*self._local.get(node, ()), *self._shared):
            if _reaches(each.spec, node, labels):
                _add(found, each)
        pools = [pool for id_, own in sorted(found.items()) if (pool := self._pool(id_, own))]
        return sorted(pools, key=_has_binding_conditions)

    def _pool(self, id_: PoolID, own: Sequence[ResourceSlice]) -> DevicePool | None:
        """Return the pool with these slices for the node; None if they are obsolete."""
        generation, count = own[0].spec.pool.generation, own[0].spec.pool.resourceSliceCount
        elsewhere: list[ResourceSlice] = []
        if len(own) != count:
            known = self._pools[id_]
            if any(each.spec.pool.generation > generation for each in known):
                return None
            same = [each for each in known if each.spec.pool.generation == generation]
            if len(same) != count:
                return DevicePool(id_, is_incomplete=True)
            names = {each.metadata.name for each in own}
            elsewhere = [each for each in same if each.metadata.name not in names]
        sets = [each for part in own for each in part.spec.sharedCounters]
        counters = {each.name: each for each in sets}
        slices = [each for each in own if not each.spec.sharedCounters]
        if len(counters) < len(sets) or not _is_valid(slices, elsewhere, counters):
            return DevicePool(id_, is_invalid=True)
        return DevicePool(id_, slices, elsewhere, counters)


def _pool_id(spec: ResourceSliceSpec) -> PoolID:
    return PoolID(spec.driver, spec.pool.name)


def _add(found: dict[PoolID, list[ResourceSlice]], item: ResourceSlice) -> None:
    """Add a slice to its pool, unless the pool has a newer generation; drop older ones."""
    known = found.setdefault(_pool_id(item.spec), [])
    generation = item.spec.pool.generation
    if known and generation > known[0].spec.pool.generation:
        known.clear()
    if not known or generation == known[0].spec.pool.generation:
        known.append(item)


def _reaches(spec: ResourceSliceSpec, node: str, labels: Labels) -> bool:
    if spec.sharedCounters:
        return True
    if spec.perDeviceNodeSelection:
        return any(device_reaches(device, node, labels) for device in spec.devices)
    return reaches(spec, node, labels)


def reaches(item: ResourceSliceSpec | Device, node: str, labels: Labels) -> bool:
    """Whether a node is one of those that a slice or device names."""
    if item.nodeName:
        return item.nodeName == node
    if item.allNodes:
        return True
    return item.nodeSelector is not None and selects(item.nodeSelector, node, labels)


def device_reaches(device: Device, node: str, labels: Labels) -> bool:
    return reaches(device, node, labels)


def selects(selector: NodeSelector, node: str, labels: Labels) -> bool:
    """Whether one of the terms of a selector matches a node."""
    matches = (compiled(term) for term in selector.nodeSelectorTerms)
    return any(match is not None and match(node, labels) for match in matches)


def _is_valid(
    slices: Sequence[ResourceSlice],
    elsewhere: Sequence[ResourceSlice],
    counters: Mapping[str, CounterSet],
) -> bool:
    """Whether device names are unique, and devices consume counters that exist."""
    seen: set[str] = set()
    for each in slices:
        for device in each.spec.devices:
            if device.name in seen:
                return False
            seen.add(device.name)
    for each in (*slices, *elsewhere):
        for device in each.spec.devices:
            for consumed in device.consumesCounters:
                known = counters.get(consumed.counterSet)
                if known is None or not consumed.counters.keys() <= known.counters.keys():
                    return False
    return True


def _has_binding_conditions(pool: DevicePool) -> bool:
    return any(device.bindingConditions for _, device in pool.devices())
