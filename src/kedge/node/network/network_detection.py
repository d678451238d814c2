"""Find out which network the pods of a node can have."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, NamedTuple

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.clock import SystemClock
from kedge.node.config import NodeConfig
from kedge.node.network.bridge import Bridge
from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import MACHINE, USER_MTU, NetworkPlace, UserNetwork
from kedge.node.network.node_network import Underlay, effective_setting, lack_of_vxlan
from kedge.node.network.peers import ROUTES
from kedge.node.runtime import channel
from kedge.node.runtime.spawn import SupervisorStart
from kedge.supervisor import machine_capabilities
from kedge.supervisor.network import OWN
from kedge.supervisor.sockets import sockets_of

if TYPE_CHECKING:
    from kedge.node.network.loopback import LoopbackNetwork

log = logging.getLogger(__name__)


class PodNetworkState(NamedTuple):
    """The bridge of a node, or why it has none."""

    bridge: Bridge | None
    refusal: str = ""
    loopback: "LoopbackNetwork | None" = None
    """The network of pods that share the machine's."""

    @property
    def of_pods(self) -> "Bridge | LoopbackNetwork | None":
        """The network that gives pods their addresses."""
        return self.bridge or self.loopback

    def service_address(self, cluster_ip: str) -> str:
        """Return the address at which pods of this node find a cluster IP."""
        return cluster_ip if self.loopback is None else self.loopback.service_address(cluster_ip)

    def resolver_variables(self, pod: Pod) -> Mapping[str, str]:
        """Return the variables by which a pod without a resolv.conf of its own finds names."""
        return {} if self.loopback is None else self.loopback.resolver_variables(pod)


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
    if refusal:
        hello = await _supervisor(config, begun)
        if hello.get("network") == OWN:
            network = UserNetwork(sockets_of(str(config.runtime)))
            refusal = await asyncio.to_thread(links_refusal, network)
        if refusal and not machine_capabilities.read(hello).namespaces:
            return _shared_network(config, refusal)
    if refusal:
        return PodNetworkState(None, refusal)
    if not network.is_machine:
        mtu = USER_MTU
    balancers = IPv4Network(config.load_balancer_network)
    directory = config.state / "network"
    found = Bridge.find(directory, balancers=balancers, pod_mtu=mtu, namespace=network)
    return PodNetworkState(found)


def _shared_network(config: NodeConfig, refusal: str) -> PodNetworkState:
    """Return the network of pods that share the machine's. The import is for few machines."""
    from kedge.node.network.loopback import LoopbackNetwork
    from kedge.supervisor.plain.grants import advice

    why = f"{refusal}; {advice('CAP_SYS_ADMIN', 'CAP_NET_ADMIN')}"
    has_dns = config.dns != "none"
    return PodNetworkState(None, why, LoopbackNetwork(config.state / "loopback", has_dns=has_dns))


async def _supervisor(config: NodeConfig, begun: SupervisorStart | None) -> dict[str, Any]:
    """Return what the supervisor says about itself."""
    connected = await channel.connect(config.runtime, SystemClock(), begun)
    try:
        return await connected.ask("hello")
    finally:
        connected.close()


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
