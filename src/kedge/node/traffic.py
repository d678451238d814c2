"""The traffic of a node's pods: Services, names, policies, and the pods of other machines."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final, NamedTuple

from kedge.api.builtin.service_networks import LOOPBACK_PODS
from kedge.api.core_v1.node_types import Node
from kedge.client.client import Client
from kedge.client.events import WARNING
from kedge.node.components import NodeComponents
from kedge.node.foundation import NodeFoundation
from kedge.node.host.node_description import NodeDescription
from kedge.node.host.pod_network import PodNetworkClaim
from kedge.node.host.resolver_files import machine_dns
from kedge.node.network.addresses import CLUSTER
from kedge.node.network.bridge import DNS_PORT, DNS_SERVICE, SERVICE, SERVICE_PORT, Bridge
from kedge.node.network.network_place import NetworkPlace
from kedge.node.network.node_network import NodeNetwork
from kedge.node.network.node_sites import NodeSites
from kedge.node.network.peers import NODE_NETWORK, NodeSite
from kedge.node.network.way_out import WayOut
from kedge.node.policies.hosted_ports import hosted_ports
from kedge.node.policies.policy_enforcer import PolicyEnforcer
from kedge.node.policies.policy_events import PolicyEvents, report_unenforced
from kedge.node.policies.policy_watch import PolicyWatch
from kedge.node.services.health_checks import ServiceHealthChecks
from kedge.node.services.service_ports import NodePlace
from kedge.node.services.service_proxy import ServiceProxy
from kedge.node.services.service_watch import ServiceWatch
from kedge.node.services.userspace_proxy import (
    UserspaceProxy,
    loopback_addresses,
    shared_network_addresses,
)

if TYPE_CHECKING:
    from kedge.node.network.loopback import LoopbackNetwork

log = logging.getLogger(__name__)

_ZONE: Final = "topology.kubernetes.io/zone"


class OpenedNetwork(NamedTuple):
    """The network of a node's pods, ready for them."""

    claimed: Node | None
    """The Node that has the network; None if pods have none of their own."""
    way_out: WayOut | None
    """The way to the machine's network, if there is no link to it."""


async def open_network(base: NodeFoundation, client: Client) -> OpenedNetwork:
    """Claim the pod network and create the bridge. A namespace without a link to the machine's
    network gets a way out in user space."""
    bridge, way_out = base.network.bridge, None
    reserved = base.network.of_pods
    if reserved is None:
        return OpenedNetwork(None, None)
    claim = PodNetworkClaim(client, base.machine_clock, reserved)
    claimed = await claim.claim(lambda: NodeDescription(base).node_object("", 0))
    if bridge is None:
        return OpenedNetwork(claimed, None)
    bridge.add_bridge()
    if not bridge.namespace.is_machine:
        way_out = await WayOut.open(bridge.namespace, bridge.gateway, base.runtime)
    await bridge.add_rules(way_out.ports if way_out is not None else None)
    return OpenedNetwork(claimed, way_out)


class NodeTraffic:
    """Carries the traffic of pods that have addresses of their own."""

    def __init__(
        self,
        base: NodeFoundation,
        client: Client,
        parts: NodeComponents,
        way_out: WayOut | None,
        sites: NodeSites,
        *,
        address: str,
        port: int,
        server: tuple[str, int],
    ) -> None:
        """`address` and `port` are those of the agent, `server` that of the API server."""
        self._base = base
        self._client = client
        self._parts = parts
        self._way_out = way_out
        self._sites = sites
        self._address = address
        self._port = port
        self._server = server

    async def run(self) -> None:
        """Run until cancelled."""
        bridge = self._base.network.bridge
        reached = self._server if bridge is None else await bridge.open_server(self._server)
        policies = PolicyWatch(self._client, self._base.machine_clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(policies.run())
            tasks.create_task(self._enforcement(policies, reached))
            if self._base.network.loopback is not None:
                tasks.create_task(self._carry_on_loopback(self._base.network.loopback))
            if bridge is None:
                return
            tasks.create_task(bridge.run())
            others = self._other_machines(bridge)
            if others is not None:
                tasks.create_task(others.run())
            if self._way_out is not None:
                tasks.create_task(self._way_out.run(self._server))
                tasks.create_task(self._run_uplink(bridge))
            services = ServiceWatch(self._client, self._base.machine_clock)
            tasks.create_task(self._health_checks(bridge, services).run())
            tasks.create_task(self._carry_services(bridge, reached, services, others))
            # Packet rules lead from the Service's address to the gateway's.
            names = [(bridge.gateway, "")]
            if bridge.refusal:
                names.append((DNS_SERVICE, bridge.link))
            tasks.create_task(self._serve_names(names, bridge.namespace))

    def _enforcement(
        self, watch: PolicyWatch, server: tuple[str, int]
    ) -> Coroutine[None, None, None]:
        """Return the work that enforces NetworkPolicies or, where that is impossible, says so."""
        config, bridge = self._base.config, self._base.network.bridge
        events = PolicyEvents(self._parts.recorder, config.name)
        if bridge is None or bridge.refusal:
            return report_unenforced(watch, events, NodeDescription(self._base).network_policy)
        dns = bridge.gateway if config.dns != "none" else None
        enforcer = PolicyEnforcer(
            watch,
            bridge.policies,
            bridge.attached,
            events,
            self._base.machine_clock,
            network=bridge.network,
            hosted=hosted_ports(server, dns),
            way_out=bridge.way_out,
        )
        return enforcer.run()

    async def _run_uplink(self, bridge: Bridge) -> None:
        """Keep a program running that carries packets to the outside, where one works. The import
        is for few machines."""
        from kedge.node.network import uplink

        def report(carrier: str) -> None:
            self._parts.registration.annotate(uplink.ANNOTATION, carrier)

        setting = self._base.config.way_out
        made = uplink.Uplink(
            bridge.namespace,
            self._base.runtime,
            uplink.wanted(setting),
            self._base.machine_clock,
            report,
            is_demanding=setting == uplink.AUTO,
        )
        await made.run()

    def _other_machines(self, bridge: Bridge) -> NodeNetwork | None:
        """Return the network to the pods of other machines; None if there can be none."""
        machines, this = self._base.machines, self._parts.registration
        if machines is None or bridge.refusal:
            return None

        def report(state: str) -> None:
            this.annotate(NODE_NETWORK, state)
            NodeDescription(self._base).write_record(self._port, state)

        def warn(sentence: str) -> None:
            log.warning("%s", sentence)
            self._parts.recorder.record(this.node, WARNING, "PodsUnreachable", sentence)

        own = NodeSite(
            self._base.config.name, bridge.network, machines.underlay.address, machines.setting
        )
        return NodeNetwork(
            self._client,
            self._base.machine_clock,
            bridge,
            own,
            machines.underlay,
            self._sites,
            lack=machines.lack,
            report=report,
            warn=warn,
        )

    def _health_checks(
        self, bridge: "Bridge | LoopbackNetwork", services: ServiceWatch
    ) -> ServiceHealthChecks:
        return ServiceHealthChecks(
            services,
            self._address,
            self._place,
            self._parts.recorder,
            self._base.machine_clock,
            bridge.namespace.socket,
        )

    async def _carry_services(
        self,
        bridge: Bridge,
        server: tuple[str, int],
        watch: ServiceWatch,
        others: NodeNetwork | None,
    ) -> None:
        """Carry connections to Services: that of the API server first, others once they are
        known."""
        clock = self._base.machine_clock
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch.run())
            if bridge.refusal:
                await UserspaceProxy(watch, bridge, self._place(), clock).run()
            if bridge.ends_with_supervisor:
                outer = UserspaceProxy(watch, bridge, self._place(), clock, loopback_addresses)
                tasks.create_task(outer.run())
            proxy = ServiceProxy(watch, bridge.table, self._place, clock)
            self._pin(proxy, bridge, server)
            if others is not None and bridge.table.was_taken_over:
                # The table of the previous agent lets other machines in; this one must do so too.
                await others.ready.wait()
            await proxy.run()

    def _pin(self, proxy: ServiceProxy, bridge: Bridge, server: tuple[str, int]) -> None:
        """Carry the Services of the API server and of DNS before any Service is known."""
        proxy.pin(str(SERVICE), "TCP", SERVICE_PORT, server)
        if self._base.config.dns != "none":
            for protocol in ("TCP", "UDP"):
                here = (str(bridge.gateway), DNS_PORT)
                proxy.pin(str(DNS_SERVICE), protocol, DNS_PORT, here)

    async def _carry_on_loopback(self, network: "LoopbackNetwork") -> None:
        """Carry Services, and answer DNS queries, for pods that share the machine's network."""
        clock = self._base.machine_clock
        services = ServiceWatch(self._client, clock)
        place = self._place()._replace(pods=LOOPBACK_PODS)
        find = partial(shared_network_addresses, network.service_address)
        proxy = UserspaceProxy(services, network, place, clock, find)
        await network.open_server(self._server)
        async with asyncio.TaskGroup() as tasks:
            for work in (network, services, proxy, self._health_checks(network, services)):
                tasks.create_task(work.run())
            names = self._serve_names(
                [(network.dns, "")], network.namespace, partial(network.names.begin, network.dns)
            )
            tasks.create_task(names)

    async def _serve_names(
        self,
        addresses: Sequence[tuple[IPv4Address, str]],
        namespace: NetworkPlace,
        announce: Callable[[], None] | None = None,
    ) -> None:
        """Answer the DNS queries of pods at addresses, each with the link by which they arrive if
        the machine does not have the address, if the cluster has no other DNS server. `announce` is
        called when queries are answered. The import runs while the node waits for the API
        server."""
        from kedge.node.network.cluster_dns import ClusterDns, DnsAddress, release_sockets

        if self._base.config.dns == "none":
            await release_sockets(self._base.runtime)
            return
        dns = ClusterDns(
            self._client,
            self._parts.sources.services,
            self._base.machine_clock,
            [DnsAddress(*each) for each in addresses],
            lambda: machine_dns().servers,
            self._base.runtime,
            namespace,
            self._base.network.service_address,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(dns.run())
            await dns.serving.wait()
            if announce is not None:
                try:
                    announce()
                except OSError as error:
                    log.warning("cannot announce the cluster's DNS server: %s", error)

    def _place(self) -> NodePlace:
        node = self._parts.registration.node
        return NodePlace(node.metadata.name, node.metadata.labels.get(_ZONE, ""), CLUSTER)
