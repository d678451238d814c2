"""Find out which network the pods of a node can have."""

import asyncio
import contextlib
import logging
from ipaddress import IPv4Network
from typing import NamedTuple

from kedge.machinery.clock import SystemClock
from kedge.node.config import NodeConfig
from kedge.node.network.bridge import Bridge
from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import MACHINE, NetworkPlace, UserNetwork
from kedge.node.network.node_network import Underlay, effective_setting, lack_of_vxlan
from kedge.node.network.peers import ROUTES
from kedge.node.runtime import channel
from kedge.node.runtime.spawn import SupervisorStart
from kedge.supervisor.network import OWN
from kedge.supervisor.sockets import sockets_of

log = logging.getLogger(__name__)


class PodNetworkState(NamedTuple):
    """The bridge of a node, or why it has none."""

    bridge: Bridge | None
    refusal: str = ""


class OtherMachines(NamedTuple):
    """The means of this machine to reach the pods of other machines."""

    underlay: Underlay
    setting: str
    """The setting `--node-network`, if the kernel can follow it."""
    lack: str
    """Why there is no VXLAN; empty if there is."""

    @classmethod
    def find(cls, config: NodeConfig, underlay: Underlay | None) -> "OtherMachines | None":
        """Return None if other machines cannot reach this one."""
        if underlay is None:
            return None
        lack = "" if config.node_network == ROUTES else lack_of_vxlan()
        if lack:
            log.warning("%s: pods of other machines are reached by routes only", lack)
        return cls(underlay, effective_setting(config.node_network, lack), lack)


async def find_bridge(
    config: NodeConfig, begun: SupervisorStart | None, mtu: int
) -> PodNetworkState:
    """Return the node's bridge: in the machine's network for root, in that of the supervisor for
    an ordinary user. `mtu` is the largest packet of pods."""
    network: NetworkPlace = MACHINE
    refusal = links_refusal(network)
    if refusal and (own := await _supervisor_network(config, begun)):
        network, refusal = own, await asyncio.to_thread(links_refusal, own)
    if refusal:
        return PodNetworkState(None, refusal)
    balancers = IPv4Network(config.load_balancer_network)
    directory = config.state / "network"
    found = Bridge.find(directory, balancers=balancers, pod_mtu=mtu, namespace=network)
    return PodNetworkState(found)


async def _supervisor_network(
    config: NodeConfig, begun: SupervisorStart | None
) -> UserNetwork | None:
    """Return the supervisor's network namespace; None if it is the machine's."""
    connected = await channel.connect(config.runtime, SystemClock(), begun)
    try:
        hello = await connected.ask("hello")
    finally:
        connected.close()
    is_own = hello.get("network") == OWN
    return UserNetwork(sockets_of(str(config.runtime))) if is_own else None


def links_refusal(network: NetworkPlace) -> str:
    """Return why this user may not create network links; empty if it may."""
    try:
        with Netlink.within(network) as netlink:
            # An existing link belongs to another agent that is probing, or was killed while it did.
            with contextlib.suppress(FileExistsError):
                netlink.add_bridge("kedge-probe")
            netlink.remove_link("kedge-probe")
    except OSError as error:
        return f"the kernel refuses network links: {error.strerror or error}"
    return ""
