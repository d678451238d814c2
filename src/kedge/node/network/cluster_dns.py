"""The cluster's DNS server as a part of the node agent: it serves the pods of the node."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from kedge.client.client import Client
from kedge.dns.answer_cache import AnswerCache
from kedge.dns.resolver import ClusterResolver
from kedge.dns.server import PORT, DnsServer, DnsSockets
from kedge.dns.source_filter import SourceFilter
from kedge.dns.upstream import Upstream
from kedge.dns.upstream_servers import UpstreamServers
from kedge.dns.zone import ClusterZone
from kedge.machinery.clock import Clock
from kedge.machinery.interfaces import own_addresses
from kedge.node.network.addresses import CLUSTER
from kedge.node.network.bridge import DNS_SERVICE
from kedge.node.network.dns import DOMAIN
from kedge.node.network.network_place import MACHINE, NetworkPlace, SocketKeeper
from kedge.node.network.zone_follower import Services, ZoneFollower
from kedge.node.runtime.runtime import RuntimeFailure

log = logging.getLogger(__name__)

SERVICE: Final = ("kube-dns", "kube-system")
"""Name and namespace of the Service of the cluster's DNS server."""
SYNC_SECONDS: Final = 2.0
"""Queries wait this long for the first lists of objects. After that, names of the cluster fail and
others resolve."""
RETRY_SECONDS: Final = 1.0
KEPT: Final = "dns"
"""The name under which the supervisor keeps the sockets."""


class DnsAddress(NamedTuple):
    """An address to listen on."""

    address: IPv4Address
    link: str = ""
    """The link by which queries arrive, if the machine does not have the address."""
    port: int = PORT


async def release_sockets(keeper: SocketKeeper) -> None:
    """Give up the sockets that an earlier agent of this node served."""
    with contextlib.suppress(RuntimeFailure):
        await keeper.keep_sockets(KEPT, [])


async def service_address(services: Services) -> str:
    """Return the cluster IP of the cluster's DNS server; empty if there is none."""
    found = (await services()).get(*SERVICE)
    address = found.spec.clusterIP if found is not None else ""
    return "" if address == "None" else address


class ClusterDns:
    """Serves the zone of the cluster. The owner must `run` it."""

    def __init__(
        self,
        client: Client,
        services: Services,
        clock: Clock,
        addresses: Sequence[DnsAddress],
        machine_servers: Callable[[], Sequence[str]],
        keeper: SocketKeeper,
        network: NetworkPlace = MACHINE,
        service_address: Callable[[str], str] = str,
    ) -> None:
        """`service_address` returns the address at which pods find a cluster IP."""
        self.serving: Final = asyncio.Event()
        """Set once queries are answered at all addresses."""
        self._clock = clock
        self._addresses = addresses
        self._keeper = keeper
        self._network = network
        self._bound: list[DnsSockets] = []
        self._objects = ZoneFollower(client, services, clock, service_address)
        self._zone = ClusterZone(
            self._objects.index,
            DOMAIN,
            IPv4Address(service_address(str(DNS_SERVICE))).packed,
            int(clock.now().timestamp()),
            synced=False,
        )
        own = [str(each.address) for each in addresses] + [str(DNS_SERVICE)]
        servers = UpstreamServers(machine_servers, own, clock)
        self._upstream = Upstream(servers, AnswerCache(clock), clock)
        resolver = ClusterResolver(self._zone, self._upstream)
        self._server = DnsServer(resolver, SourceFilter([CLUSTER], own_addresses, clock), clock)

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (self._objects, self._upstream, self._server):
                    tasks.create_task(work.run())
                tasks.create_task(self._publish())
                kept = await self._kept()
                listening = [
                    tasks.create_task(self._listen(each, kept)) for each in self._addresses
                ]
                await asyncio.wait(listening)
                self._close_others(kept)
                self.serving.set()
        finally:
            self._server.close()

    async def _publish(self) -> None:
        await self._objects.synced.wait()
        self._zone.is_synced = True

    async def _kept(self) -> list[socket.socket]:
        """Return the sockets of the previous agent; queries wait in them."""
        try:
            found = await self._keeper.kept_sockets(KEPT)
        except RuntimeFailure:
            # A supervisor of an earlier release keeps none.
            return []
        sockets = [socket.socket(fileno=each) for each in found]
        for each in sockets:
            each.setblocking(False)
        return sockets

    def _close_others(self, kept: Sequence[socket.socket]) -> None:
        """Close the sockets of addresses that the node no longer has."""
        used = {end for each in self._bound for end in (each.datagram, each.stream)}
        for each in kept:
            if each not in used:
                each.close()

    async def _keep(self, sockets: DnsSockets) -> None:
        self._bound.append(sockets)
        every = [end.fileno() for each in self._bound for end in (each.datagram, each.stream)]
        with contextlib.suppress(RuntimeFailure):
            await self._keeper.keep_sockets(KEPT, every)

    async def _listen(self, where: DnsAddress, kept: Sequence[socket.socket]) -> None:
        """Bind first, so that queries wait instead of failing; serve when names are known."""
        sockets = await self._bind(where, kept)
        await self._keep(sockets)
        try:
            await self._wait_for_names()
        except BaseException:
            sockets.close()
            raise
        await self._server.serve(sockets)
        log.info("cluster DNS address=%s", where.address)

    async def _bind(self, where: DnsAddress, kept: Sequence[socket.socket]) -> DnsSockets:
        """Bind to an address; retry while another program uses it."""
        is_logged = False
        while True:
            try:
                return DnsSockets(
                    str(where.address), where.port, where.link, kept, self._network.socket
                )
            except OSError as error:
                if not is_logged:
                    log.warning("cluster DNS cannot use %s: %s; retrying", where.address, error)
                is_logged = True
                await self._clock.sleep(RETRY_SECONDS)

    async def _wait_for_names(self) -> None:
        """Return when the zone is complete, or after a while."""
        async with asyncio.TaskGroup() as tasks:
            waits = self._objects.synced.wait(), self._clock.sleep(SYNC_SECONDS)
            waiting = [tasks.create_task(_ended(each)) for each in waits]
            _, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in rest:
                each.cancel()


async def _ended(wait: Awaitable[object]) -> None:
    await wait
