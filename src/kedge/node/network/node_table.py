"""The nf_tables table of one node, in the kernel.

The table outlives the agent: connections to Services and host ports work while there is none. The
next agent takes the table over as it is, and replaces it once it knows all Services.
"""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from kedge.node.network import ruleset
from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import MACHINE as MACHINE_NETWORK
from kedge.node.network.network_place import NetworkPlace
from kedge.node.network.nftables.batch import OWNER, PERSIST, Batch
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.ruleset import EMPTY, HOST_PORTS, MACHINE, Ruleset, ServerLimit, TableScope
from kedge.node.network.table_replacement import (
    TableBuilder,
    cover_name,
    delete_tables,
    replace_table,
)

log = logging.getLogger(__name__)

_LINKS: Final = "/sys/class/net"
_EVERYWHERE: Final = IPv4Network("0.0.0.0/0")
_BEHIND_UPLINK: Final = 4096
"""The metric of the default route by the bridge: that of an uplink comes first."""
_LACKING: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT)
"""Errors of a kernel that lacks a feature."""


class NodeTable:
    """The table of one node. `open` raises OSError if the kernel refuses it."""

    def __init__(self, scope: TableScope, namespace: NetworkPlace = MACHINE_NETWORK) -> None:
        self.namespace = namespace
        self.scope = scope
        self._flags = OWNER | PERSIST
        self._channel: NftablesSocket | None = None
        self._host_ports: dict[bytes, bytes] = {}
        self._peers: dict[str, frozenset[bytes]] = {}
        self._lock = asyncio.Lock()
        self.was_taken_over = False
        """Whether the kernel still has the table of the previous agent."""

    async def open(self) -> None:
        """Take over the table of the previous agent, or write one without Services."""
        channel = NftablesSocket(self.namespace)
        try:
            self.was_taken_over = self.scope.link in channel.tables()
            if not self.was_taken_over:
                self._write(channel, EMPTY)
        except BaseException:
            channel.close()
            raise
        self._channel = channel

    async def rewrite(self, services: Callable[[], Ruleset]) -> None:
        """Replace the whole table. Packets meet the old rules, the new ones or both."""
        async with self._lock:
            if self._channel is not None:
                channel = self._channel
                await asyncio.to_thread(lambda: self._write(channel, services()))

    async def apply(self, change: Callable[[str], Batch]) -> None:
        """Apply a change of the Services. Raises OSError; the table is unchanged then."""
        async with self._lock:
            if self._channel is not None:
                channel = self._channel
                # In a thread: how much there is to encode is up to the users.
                await asyncio.to_thread(lambda: channel.apply(change(self.scope.link)))

    async def open_host_ports(self, ports: Mapping[bytes, bytes]) -> None:
        """Send connections to host ports into pods, also while no agent runs."""
        async with self._lock:
            stale = [key for key in ports if key in self._host_ports]
            self._host_ports.update(ports)
            change = Batch(self.scope.link)
            change.delete_elements(HOST_PORTS, stale)
            change.add_elements(HOST_PORTS, ports)
            self._try(change)

    async def close_host_ports(self, keys: list[bytes]) -> None:
        async with self._lock:
            known = [key for key in keys if self._host_ports.pop(key, None) is not None]
            change = Batch(self.scope.link)
            change.delete_elements(HOST_PORTS, known)
            self._try(change)

    async def set_peers(self, peers: Mapping[str, frozenset[bytes]]) -> None:
        """Accept packets of these nodes of other machines, by set, and of no others."""
        async with self._lock:
            change = Batch(self.scope.link)
            for name, wanted in peers.items():
                known = self._peers.get(name, frozenset())
                change.delete_elements(name, sorted(known - wanted))
                change.add_elements(name, dict.fromkeys(sorted(wanted - known), b""))
            self._peers.update(peers)
            self._try(change)

    def _try(self, change: Batch) -> None:
        """Apply a change of elements. If it fails, the next rewrite makes up for it: the table is
        that of a previous agent, which may have other elements already."""
        if self._channel is None:
            return
        try:
            self._channel.apply(change)
        except OSError as error:
            log.info("elements are written with the next rewrite error=%s", error)

    def must_change_owner(self) -> bool:
        """Return whether this table handles the machine's own packets and should not, or the
        other way round."""
        if self._channel is None:
            return False
        # With a socket of its own: a thread may be using the other one.
        with contextlib.closing(NftablesSocket(self.namespace)) as channel:
            return self.scope.owns_machine == self._is_other_owner(channel)

    def _is_other_owner(self, channel: NftablesSocket) -> bool:
        """Whether the machine's own packets belong to another table, or to another cluster."""
        with Netlink.within(self.namespace) as netlink:
            links, routes = netlink.links(), netlink.routes()
        bridges = {name for name in links if name.startswith(self.scope.links)}
        ours = {links[each] for each in bridges}
        # Perhaps the machine reaches the services of a real cluster, for instance by a VPN.
        if any(each in routes and routes[each] not in ours for each in self.scope.services):
            return True
        others = bridges - {self.scope.link}
        return any(each.chain == MACHINE and each.table in others for each in channel.chains())

    def _write(self, channel: NftablesSocket, services: Ruleset) -> None:
        with machine_lock():
            owns = not self._is_other_owner(channel)
            self.scope = self.scope._replace(owns_machine=owns)
            self._send(channel, services)
            if owns:
                self._add_routes()

    def _add_routes(self) -> None:
        """Without a route, a machine that has no default route refuses its own packets before any
        rule sees them."""
        routes = dict.fromkeys(self.scope.services, 0)
        if self.scope.way_out is not None:
            routes[_EVERYWHERE] = _BEHIND_UPLINK
        with Netlink.within(self.namespace) as netlink:
            for network, metric in routes.items():
                with contextlib.suppress(FileExistsError):
                    netlink.add_link_route(netlink.index(self.scope.link), network, metric)

    def _send(self, channel: NftablesSocket, services: Ruleset) -> None:
        """Write the table; do without a feature that the kernel lacks, and remember that."""
        name = self.scope.link
        sessions = self._sessions(channel, services) if name in channel.tables() else {}
        for flags, limit in self._features():
            scope = self.scope._replace(server_limit=limit)
            whole = [ruleset.base(scope, self._elements()), services]
            build = _builder(flags, whole, sessions)
            try:
                replace_table(channel, name, build)
            except OSError as error:
                if error.errno not in _LACKING or not (flags or limit):
                    raise
                continue
            self._flags, self.scope = flags, scope
            return

    def _elements(self) -> dict[str, dict[bytes, bytes]]:
        peers = {name: dict.fromkeys(keys, b"") for name, keys in self._peers.items()}
        return {HOST_PORTS: dict(self._host_ports), **peers}

    def _sessions(self, channel: NftablesSocket, services: Ruleset) -> dict[str, dict[bytes, int]]:
        """Return the clients of Services with session affinity, who stay with their endpoints."""
        found: dict[str, dict[bytes, int]] = {}
        for name, spec in services.sets.items():
            if spec.timeout_seconds:
                with contextlib.suppress(OSError):
                    found[name] = channel.expirations(self.scope.link, name)
        return found

    def _features(self) -> Iterator[tuple[int, ServerLimit | None]]:
        """Yield what to ask for, most first. PERSIST came with kernel 6.9, and the counting of
        connections is an option of the kernel."""
        limits = dict.fromkeys((self.scope.server_limit, None))
        for flags in dict.fromkeys((self._flags, 0)):
            for limit in limits:
                yield flags, limit

    def close(self) -> None:
        """Close the socket; the table stays."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def remove(self) -> None:
        """Remove the table. Idempotent."""
        self.close()
        with (
            contextlib.suppress(OSError),
            contextlib.closing(NftablesSocket(self.namespace)) as channel,
        ):
            delete_tables(channel, self.scope.link, cover_name(self.scope.link))


def _builder(
    flags: int, whole: Sequence[Ruleset], sessions: Mapping[str, Mapping[bytes, int]]
) -> TableBuilder:
    """Return what writes these rules under any name, with the clients of sticky Services."""

    def build(name: str, /, *, replaces: bool) -> Batch:
        made = ruleset.replacement(name, flags, whole, replaces=replaces)
        for clients, expirations in sessions.items():
            made.add_expiring_elements(clients, expirations)
        return made

    return build


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    """Lock out other agents of this machine."""
    held = os.open(_LINKS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def host_port_element(
    host: str, protocol: str, host_port: int, address: IPv4Address, port: int
) -> tuple[bytes, bytes]:
    """Return the element of a host port; without an address, it is that of every address."""
    here = IPv4Address(host or "0.0.0.0")
    return ruleset.key(here, protocol, host_port), ruleset.target(address, port)
