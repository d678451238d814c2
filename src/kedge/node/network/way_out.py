"""The way out of a network namespace that has no link to the machine's network.

Packet rules send what pods address to the outside to one TCP and one UDP socket in the namespace.
The agent connects from the machine's network to the addresses that the pods meant, and copies. It
needs neither a device such as /dev/net/tun nor another program. Pods reach what pods of root would
reach: other machines, and this machine at its own addresses, but never its loopback addresses.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final, NamedTuple

from kedge.node.network import forward
from kedge.node.network.addresses import CLUSTER
from kedge.node.network.bridge import BALANCER_RANGE, SERVICE_RANGE
from kedge.node.network.conntrack import FlowLookup
from kedge.node.network.forward import ConnectionLimit, DatagramListener, Target
from kedge.node.network.network_place import MACHINE, NetworkPlace, SocketKeeper
from kedge.node.network.ruleset import WayOutPorts
from kedge.node.runtime.runtime import RuntimeFailure

log = logging.getLogger(__name__)

KEPT: Final = "way out"
"""The name under which the supervisor keeps the sockets."""
TOTAL: Final = 2048
"""Connections of all pods to the outside; one pod may have forward.PER_SOURCE."""
_BUFFER: Final = 32 << 10
"""Bytes that are read ahead of each end of a connection."""
RECHECK_SECONDS: Final = 20.0
"""The kernel forgets a flow of datagrams after 30 s of silence, and may then give its port to a
flow to another destination."""
_BACKLOG: Final = 1024
_ORIGINAL_DESTINATION: Final = 80
"""SO_ORIGINAL_DST: the destination of a connection before packet rules changed it."""
_ADDRESS: Final = struct.Struct(">2xH4s8x")
_INSIDE: Final = (CLUSTER, SERVICE_RANGE, BALANCER_RANGE)
"""Networks of the cluster. On the machine's side they lead nowhere, or into another cluster."""
_UNREACHABLE: Final = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("224.0.0.0/3"),
)
"""The machine itself, groups and broadcasts: no router would carry packets of pods there."""
REFUSED: Final = (*_INSIDE, *_UNREACHABLE)
"""Networks that are not outside."""


def is_outside(address: IPv4Address) -> bool:
    """Whether pods may reach an address by the machine's network."""
    return not any(address in network for network in REFUSED)


class WayOut:
    """Carries connections and datagrams of one node to the outside."""

    def __init__(self, sockets: "WayOutSockets", network: NetworkPlace) -> None:
        self._sockets = sockets
        self._network = network
        self._limit = ConnectionLimit(forward.PER_SOURCE, TOTAL)

    @classmethod
    async def open(
        cls, network: NetworkPlace, gateway: IPv4Address, keeper: SocketKeeper
    ) -> "WayOut":
        """Listen at the gateway address, or go on with the sockets of the previous agent."""
        sockets = await _kept(keeper, gateway) or _bound(network, gateway)
        for each in sockets:
            each.setblocking(False)
        with contextlib.suppress(RuntimeFailure):
            await keeper.keep_sockets(KEPT, [each.fileno() for each in sockets])
        return cls(sockets, network)

    @property
    def ports(self) -> WayOutPorts:
        return WayOutPorts(*(each.getsockname()[1] for each in self._sockets))

    async def run(self, server: Target) -> None:
        """Carry until cancelled. `server` is the API server."""
        loop = asyncio.get_running_loop()
        # The sockets stay open for the next agent, which gets the connections that wait.
        listening = [
            await asyncio.start_server(handle, sock=each.dup(), backlog=_BACKLOG, limit=_BUFFER)
            for handle, each in (
                (partial(self._carry, original_destination), self._sockets.stream),
                (partial(self._carry, lambda _: server), self._sockets.server),
            )
        ]
        lookup = FlowLookup(self._network, *self._sockets.datagram.getsockname())
        datagrams, _ = await loop.create_datagram_endpoint(
            lambda: DatagramListener(FlowTargets(lookup), MACHINE, per_source=forward.PER_SOURCE),
            sock=self._sockets.datagram.dup(),
        )
        try:
            await loop.create_future()
        finally:
            for each in listening:
                each.close()
            datagrams.close()
            lookup.close()

    def close(self) -> None:
        """Close the sockets; the supervisor keeps them."""
        for each in self._sockets:
            each.close()

    async def _carry(
        self,
        find: Callable[[socket.socket], Target],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        pod = (writer.get_extra_info("peername") or ("",))[0]
        try:
            target = find(writer.get_extra_info("socket"))
            with self._limit.connection(pod) as is_below_limit:
                if not is_below_limit:
                    raise ConnectionRefusedError
                await forward.forward(reader, writer, target, MACHINE)
        except OSError:
            # The pod sees a reset, as if nothing listened.
            writer.transport.abort()


def original_destination(accepted: socket.socket) -> Target:
    """Return where a pod wanted to connect. Raises OSError if that is not outside."""
    raw = accepted.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, _ADDRESS.size)
    port, packed = _ADDRESS.unpack(raw)
    address = IPv4Address(packed)
    if not is_outside(address):
        raise ConnectionRefusedError(f"{address} is not outside")
    return str(address), port


class FlowTargets:
    """Finds out where the pods' datagrams were sent to. Fulfils DatagramTargets."""

    def __init__(self, lookup: FlowLookup) -> None:
        self._lookup = lookup

    def find(self, client: Any) -> Target:
        """Return the destination of a client's datagrams. Raises OSError if it is not outside."""
        flow = self._lookup.flow_from(IPv4Address(client[0]), client[1])
        if not is_outside(flow.destination):
            raise ConnectionRefusedError(f"{flow.destination} is not outside")
        return str(flow.destination), flow.port

    def is_current(self, client: Any, target: Target, silence: float) -> bool:
        return silence < RECHECK_SECONDS or self.find(client) == target


class WayOutSockets(NamedTuple):
    """Sockets at the gateway address, in the order of WayOutPorts."""

    stream: socket.socket
    datagram: socket.socket
    server: socket.socket
    """Gets connections to the API server."""


async def _kept(keeper: SocketKeeper, gateway: IPv4Address) -> WayOutSockets | None:
    """Return the sockets of the previous agent; None if there are none for this address."""
    try:
        found = [socket.socket(fileno=each) for each in await keeper.kept_sockets(KEPT)]
    except RuntimeFailure:
        return None
    here = [str(gateway)] * len(WayOutSockets._fields)
    if [each.getsockname()[0] for each in found] == here:
        return WayOutSockets(*found)
    for each in found:
        each.close()
    return None


def _bound(network: NetworkPlace, gateway: IPv4Address) -> WayOutSockets:
    made: list[socket.socket] = []
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM):
            made.append(network.socket(socket.AF_INET, kind))
            made[-1].bind((str(gateway), 0))
            if kind == socket.SOCK_STREAM:
                made[-1].listen(_BACKLOG)
    except OSError:
        for each in made:
            each.close()
        raise
    return WayOutSockets(*made)
