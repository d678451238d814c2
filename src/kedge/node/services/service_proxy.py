"""Keeps the rules of Services in the kernel in step with Services and EndpointSlices."""

import asyncio
import logging
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Final, NamedTuple, Protocol

from kedge.api.core_v1.service_types import Service
from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.client.informer import Key
from kedge.machinery.clock import Clock
from kedge.node.network import conntrack
from kedge.node.network.network_place import NetworkPlace
from kedge.node.network.nftables.batch import Batch
from kedge.node.network.ruleset import Ruleset, TableScope
from kedge.node.services.datapath import ServiceDatapath
from kedge.node.services.service_ports import EndpointTarget, NodePlace, carried_ports, is_large
from kedge.node.services.service_rules import ServiceRules, pinned_rules, service_rules
from kedge.node.services.service_watch import ServiceWatch
from kedge.node.services.stale_flows import UdpTargets, stale_flows, to_check, udp_targets

log = logging.getLogger(__name__)

MERGE_SECONDS: Final = 0.005
"""Changes of so many seconds are written together."""
OWNER_SECONDS: Final = 2.0
"""Seconds between two looks whether the machine's own packets belong to another node's table."""
RETRY_SECONDS: Final = 5.0


class ServiceTable(Protocol):
    """The table in the kernel (kedge.node.network.node_table)."""

    namespace: NetworkPlace
    scope: TableScope
    was_taken_over: bool

    async def rewrite(self, services: Callable[[], Ruleset]) -> None: ...

    async def apply(self, change: Callable[[str], Batch]) -> None: ...

    def must_change_owner(self) -> bool: ...


class ServiceProxy:
    """Programs Services into a node's table. The owner must `run` it."""

    def __init__(
        self, watch: ServiceWatch, table: ServiceTable, place: Callable[[], NodePlace], clock: Clock
    ) -> None:
        self._watch = watch
        self._table = table
        self._find_place = place
        self._place = place()
        self._clock = clock
        self._datapath = ServiceDatapath()
        self._udp: dict[str, UdpTargets] = {}
        self._to_check: UdpTargets = {}
        self._dirty: dict[Key, None] = {}
        self._woken = asyncio.Event()
        self._must_rewrite = True
        watch.listen(self._note)

    def pin(self, address: str, protocol: str, port: int, target: tuple[str, int]) -> None:
        """Send a service port to a program of this machine, whatever its Service says. Call it
        before `run`."""
        there = EndpointTarget(IPv4Address(target[0]), target[1])
        rules = pinned_rules(IPv4Address(address), protocol, port, there)
        self._datapath.put(f"{protocol}/{address}:{port}", rules)

    async def run(self) -> None:
        """Follow Services until cancelled."""
        if not self._table.was_taken_over:
            await self._write()
            self._must_rewrite = True
        await self._watch.synced()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_owner())
            while True:
                await self._recompute()
                if await self._write():
                    await self._clean_up()
                    await self._woken.wait()
                    await self._clock.sleep(MERGE_SECONDS)
                else:
                    await self._clock.sleep(RETRY_SECONDS)

    def _note(self, key: Key) -> None:
        self._dirty[key] = None
        self._woken.set()

    async def _recompute(self) -> None:
        """Compute the rules of all Services that changed."""
        self._woken.clear()
        place = self._find_place()
        if place != self._place:
            self._place = place
            self._dirty.update(dict.fromkeys(map(_key, self._watch.services)))
        while self._dirty:
            key = next(iter(self._dirty))
            del self._dirty[key]
            try:
                await self._recompute_service(key)
            except Exception:
                # One bad object must not end the agent: it would end the next one too.
                log.exception("service skipped service=%s/%s", *key)
            await self._clock.give_way()

    async def _recompute_service(self, key: Key) -> None:
        name = f"{key.namespace}/{key.name}"
        found = self._watch.services.get(key.name, key.namespace)
        if found is None:
            computed = _NOTHING
        elif is_large(found, slices := self._watch.slices(key)):
            # How many ports and endpoints there are is up to the users.
            computed = await asyncio.to_thread(_compute, name, found, slices, self._place)
        else:
            computed = _compute(name, found, slices, self._place)
        before = self._udp.pop(name, {})
        self._to_check |= to_check(before, computed.udp)
        if computed.udp:
            self._udp[name] = computed.udp
        if computed.rules is not None:
            self._datapath.put(name, computed.rules)
        else:
            self._datapath.remove(name)

    async def _write(self) -> bool:
        """Bring the kernel up to date; after a failure, with a whole new table."""
        if not self._must_rewrite:
            try:
                await self._table.apply(self._datapath.change)
                self._datapath.confirm()
                return True
            except OSError as error:
                log.warning("rules of services are written anew error=%s", error)
                self._must_rewrite = True
        try:
            await self._table.rewrite(self._datapath.everything)
        except OSError as error:
            log.error("rules of services cannot be written error=%s; retrying", error)
            return False
        self._datapath.confirm()
        self._must_rewrite = False
        return True

    async def _clean_up(self) -> None:
        """Delete UDP flows to endpoints that are gone."""
        checked, self._to_check = self._to_check, {}
        if not checked:
            return
        try:
            namespace = self._table.namespace
            flows = await asyncio.to_thread(conntrack.udp_flows, namespace)
            stale = list(stale_flows(flows, checked, self._table.scope))
            await asyncio.to_thread(conntrack.delete_flows, stale, namespace)
        except OSError as error:
            log.warning("flows to removed endpoints cannot be deleted error=%s", error)

    async def _watch_owner(self) -> None:
        """Take over the machine's own packets when the node that handled them is gone."""
        while True:
            await self._clock.sleep(OWNER_SECONDS)
            if await asyncio.to_thread(self._table.must_change_owner):
                self._must_rewrite = True
                self._woken.set()


class _ComputedService(NamedTuple):
    udp: UdpTargets
    rules: ServiceRules | None
    """None if the node carries no port of the Service."""


_NOTHING: Final = _ComputedService({}, None)


def _compute(
    name: str, service: Service, slices: list[EndpointSlice], place: NodePlace
) -> _ComputedService:
    ports = carried_ports(service, slices, place)
    return _ComputedService(udp_targets(ports), service_rules(name, ports) if ports else None)


def _key(service: Service) -> Key:
    return Key(service.metadata.namespace, service.metadata.name)
