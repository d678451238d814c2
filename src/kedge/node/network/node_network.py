"""Keeps the way to the pods of other machines in step with the Nodes of the cluster."""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final, NamedTuple, Protocol

from kedge.api.core_v1.node import RESOURCE
from kedge.client.client import Client
from kedge.client.informer import Informer
from kedge.client.view import sketches
from kedge.machinery.clock import Clock
from kedge.node.network import forwarding, peer_links, ruleset, tunnel
from kedge.node.network.netlink import Netlink
from kedge.node.network.node_sites import NodeSites
from kedge.node.network.node_table import NodeTable, machine_lock
from kedge.node.network.peer_links import VxlanLink
from kedge.node.network.peers import (
    ROUTES,
    VXLAN,
    LocalNetworks,
    NodeAddresses,
    NodeSite,
    PeerPlan,
    UnreachableNode,
    described,
    is_machine_address,
    plan,
)
from kedge.node.network.ruleset import TableScope

log = logging.getLogger(__name__)

RESYNC_SECONDS: Final = 10.0
"""Seconds between two looks at the kernel: a link that goes down takes its routes with it."""
MERGE_SECONDS: Final = 0.005
_LARGEST: Final = 1500
"""The largest packet of pods on an ordinary network."""
_LACKING: Final = (errno.EOPNOTSUPP, errno.ENODEV)
_PROBE: Final = "kvx-probe"
_PROBE_NUMBER: Final = 0x6B0000
"""A number that no node has: no pod network begins with 10.0."""
_PROBE_HARDWARE: Final = b"\x02\x6b\0\0\0\0"


class Underlay(NamedTuple):
    """The link of the machine that leads to the other machines."""

    link: int
    """The index of the link."""
    address: IPv4Interface
    mtu: int


class PodNetworkLinks(Protocol):
    """The node's links (kedge.node.network.bridge)."""

    network: IPv4Network
    table: NodeTable

    @property
    def tunnel(self) -> str: ...

    @property
    def metric(self) -> int: ...


def find_underlay(address: str) -> Underlay | None:
    """Return the link with an address; None if other machines cannot reach the address, or if no
    link has it."""
    try:
        wanted = IPv4Address(address)
    except ValueError:
        return None
    if not is_machine_address(wanted):
        return None
    with Netlink() as netlink:
        for index, each in netlink.addresses():
            if each.ip == wanted:
                return Underlay(index, each, netlink.mtu(index))
    return None


def pod_mtu(underlay: Underlay | None, setting: str) -> int:
    """Return the largest packet of pods, which fits into a tunnel too; 0 for the kernel's
    default."""
    if underlay is None:
        return 0
    room = underlay.mtu - (0 if setting == ROUTES else tunnel.OVERHEAD)
    return room if room < _LARGEST else 0


def lack_of_vxlan() -> str:
    """Return why this kernel has no VXLAN; empty if it has."""
    with Netlink() as netlink:
        link = VxlanLink(_PROBE_NUMBER, IPv4Address("127.0.0.1"), _LARGEST)
        try:
            with contextlib.suppress(FileExistsError):
                peer_links.add_bare_vxlan(netlink, _PROBE, link, _PROBE_HARDWARE)
        except OSError as error:
            if error.errno in _LACKING:
                return "the kernel has no VXLAN"
            return f"the kernel refuses VXLAN: {error}"
        finally:
            netlink.remove_link(_PROBE)
    return ""


class NodeNetwork:
    """Routes and tunnels to the nodes of other machines. The owner must `run` it."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        links: PodNetworkLinks,
        own: NodeSite,
        underlay: Underlay,
        sites: NodeSites,
        *,
        lack: str,
        report: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """`lack` is why there is no VXLAN, `report` gets the text for users whenever it changes,
        `warn` a sentence about each node that cannot be reached."""
        self.ready: Final = asyncio.Event()
        """Set once the kernel has the way to all nodes."""
        self._links = links
        self._clock = clock
        self._own = own
        self._underlay = underlay
        self._lack = lack
        self._report = report
        self._warn = warn
        self._sites = sites
        self._informer = Informer(client, sketches(RESOURCE, NodeAddresses), sites, clock)
        self._told = ""
        self._plan = PeerPlan()

    async def run(self) -> None:
        """Follow Nodes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.synced.wait()
            while True:
                self._sites.changed.clear()
                try:
                    await self._bring_up_to_date()
                    self.ready.set()
                except OSError as error:
                    log.error("network of nodes not updated error=%s; retrying", error)
                await self._wait()
                await self._clock.sleep(MERGE_SECONDS)

    async def _wait(self) -> None:
        """Return when a Node changes, or when it is time to look at the kernel again."""
        async with asyncio.TaskGroup() as tasks:
            alarm = tasks.create_task(self._alarm())
            await self._sites.changed.wait()
            alarm.cancel()

    async def _alarm(self) -> None:
        await self._clock.sleep(RESYNC_SECONDS)
        self._sites.changed.set()

    async def _bring_up_to_date(self) -> None:
        # In a thread: how many Nodes there are is up to the users.
        found = await asyncio.to_thread(self._decide, list(self._sites))
        await self._links.table.set_peers(accepted(found))
        await asyncio.to_thread(self._write, found)
        self._tell(found)

    def _decide(self, sites: list[NodeSite]) -> PeerPlan:
        with Netlink() as netlink:
            return plan(self._own, sites, local_networks(netlink, self._links.table.scope))

    def _write(self, found: PeerPlan) -> None:
        """Bring the kernel to the state of the plan."""
        metric = self._links.metric
        # The link may have been created anew, for instance by a network service that restarted.
        self._underlay = find_underlay(str(self._underlay.address.ip)) or self._underlay
        with machine_lock(), Netlink() as netlink:
            vxlan = self._tunnel(netlink, needed=bool(found.networks(VXLAN)))
            have = peer_links.read(netlink, metric, vxlan)
            want = peer_links.wanted(found, self._underlay.link, vxlan)
            change = peer_links.difference(have, want)
            peer_links.apply(netlink, change, metric, vxlan)

    def _tunnel(self, netlink: Netlink, *, needed: bool) -> int:
        """Return the index of the VXLAN link, which exists while some node needs it; else 0."""
        name, network = self._links.tunnel, self._links.network
        underlay = self._underlay
        wanted = VxlanLink(
            tunnel.number(network), underlay.address.ip, underlay.mtu - tunnel.OVERHEAD
        )
        if needed and peer_links.read_vxlan(netlink, name) == wanted:
            return netlink.index(name)
        netlink.remove_link(name)
        if not needed:
            return 0
        peer_links.add_vxlan(netlink, name, wanted, network)
        forwarding.forward_from_tunnel(name)
        # For node ports on 127.0.0.1; the chain `tunnel` lets nothing else in for such addresses.
        forwarding.reach_loopback(name)
        return netlink.index(name)

    def _tell(self, found: PeerPlan) -> None:
        before = set(self._plan.peers), set(self._plan.unreachable)
        for peer in found.peers:
            if peer not in before[0]:
                log.info(
                    "pods of node=%s network=%s by %s machine=%s",
                    peer.name,
                    peer.network,
                    peer.way,
                    peer.address,
                )
        for each in found.unreachable:
            if each not in before[1]:
                self._warn(_sentence(each))
        self._plan = found
        told = described(self._own.setting, found, self._lack)
        if told != self._told:
            self._told = told
            self._report(told)


def effective_setting(setting: str, lack: str) -> str:
    """Return the setting that a node publishes: without VXLAN, routes are all it can use."""
    return ROUTES if lack else setting


def accepted(found: PeerPlan) -> dict[str, frozenset[bytes]]:
    """Return the elements of the sets of the node's table for these peers."""
    tunnelled = [each for each in found.peers if each.way == VXLAN]
    return {
        ruleset.TUNNEL_PEERS: frozenset(
            ruleset.tunnel_peer(each.address, each.network) for each in tunnelled
        ),
        ruleset.ROUTED_PEERS: frozenset(map(ruleset.routed_peer, found.networks(ROUTES))),
    }


def local_networks(netlink: Netlink, scope: TableScope) -> LocalNetworks:
    """Return the machine's addresses, and the pod networks of its other nodes."""
    links = {index: name for name, index in netlink.links().items()}
    addresses = netlink.addresses()
    bridges = {
        each.network
        for index, each in addresses
        if links.get(index, "").startswith(scope.links) and each.network != scope.network
    }
    return LocalNetworks(frozenset(each.ip for _, each in addresses), bridges)


def _sentence(each: UnreachableNode) -> str:
    return f'Pods of the node "{each.name}" cannot be reached: {each.why}'
