"""The node agent: builds everything that a node consists of, and runs it."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import uvloop

from kedge import KUBERNETES
from kedge.api.builtin.policy_limits import ENFORCED, ENFORCEMENT_ANNOTATION
from kedge.api.core_v1.node_types import ContainerImage, Node
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.client.client import Client
from kedge.client.events import WARNING, Recorder
from kedge.machinery.clock import SystemClock
from kedge.machinery.errors import StatusError
from kedge.machinery.open_files import raise_limit
from kedge.node.cgroups.tree import NoCgroups, PodCgroupTree
from kedge.node.config import NodeConfig
from kedge.node.devices.access import DeviceAccessReview
from kedge.node.devices.devices import NodeDevices, find_directory
from kedge.node.host import machine, node_record, registration
from kedge.node.host.api_access import ApiAccess
from kedge.node.host.certificates import CertificateRenewal
from kedge.node.host.eviction import LocalStorageEviction
from kedge.node.host.pod_network import PodNetworkClaim
from kedge.node.host.registration import NodeRegistration
from kedge.node.host.user_namespaces import UserNamespaces
from kedge.node.images import host
from kedge.node.images.garbage_collector import ImageGarbageCollector
from kedge.node.images.host import HostImage
from kedge.node.images.images import ImageService
from kedge.node.images.mapping import ImageMapping
from kedge.node.images.registry import RegistryClient
from kedge.node.images.store import ImageStore
from kedge.node.network.addresses import CLUSTER, internal_address
from kedge.node.network.bridge import DNS_PORT, DNS_SERVICE, SERVICE, SERVICE_PORT, Bridge
from kedge.node.network.dns import resolv_conf
from kedge.node.network.netlink import Netlink
from kedge.node.network.network_place import MACHINE, NetworkPlace, UserNetwork
from kedge.node.network.node_network import (
    NodeNetwork,
    Underlay,
    effective_setting,
    find_underlay,
    lack_of_vxlan,
    pod_mtu,
)
from kedge.node.network.peers import (
    MACHINE_ADDRESS,
    NODE_NETWORK,
    ROUTES,
    NodeSite,
    PeerPlan,
    described,
)
from kedge.node.network.way_out import WayOut
from kedge.node.pod import security_modules
from kedge.node.pod.dependencies import PodCgroups, PodDependencies
from kedge.node.pod.environment.environment import EnvironmentVariables
from kedge.node.pod.files import PodFiles, WritablePaths
from kedge.node.pod.referenced_objects import ConfigObjectWatches, ReferencedObjects
from kedge.node.pod.workers import PodWorkers
from kedge.node.policies.hosted_ports import hosted_ports
from kedge.node.policies.policy_enforcer import PolicyEnforcer
from kedge.node.policies.policy_events import PolicyEvents, report_unenforced
from kedge.node.policies.policy_watch import PolicyWatch
from kedge.node.resource_claims.claims import NodeClaims
from kedge.node.resource_claims.slice_removal import NodeSlices
from kedge.node.runtime import channel
from kedge.node.runtime.embedded import EmbeddedRuntime
from kedge.node.runtime.runtime import DnsConfig, RuntimeLevel
from kedge.node.runtime.runtime_class import RuntimeClassChecker
from kedge.node.runtime.spawn import SupervisorStart
from kedge.node.server.server import NodeServer
from kedge.node.services.health_checks import ServiceHealthChecks
from kedge.node.services.service_ports import NodePlace
from kedge.node.services.service_proxy import ServiceProxy
from kedge.node.services.service_watch import ServiceWatch
from kedge.node.services.userspace_proxy import UserspaceProxy, loopback_addresses
from kedge.node.stats.disk_places import PodDiskPlaces
from kedge.node.storage.csi_registry import CsiRegistry
from kedge.node.storage.node_storage import MANAGED_ATTACHMENT, NodeStorage
from kedge.node.volumes.volumes import PodVolumes
from kedge.restarter.bounded_log import BoundedLogHandler
from kedge.supervisor.files.spread import spread
from kedge.supervisor.kernel import cgroups
from kedge.supervisor.network import OWN
from kedge.supervisor.sockets import sockets_of
from kedge.web.server import log_loop_error
from kedge.web.watchdog import LoopPauses, watched

log = logging.getLogger(__name__)

MEASURE_AFTER_SECONDS: Final = 0.5
"""Seconds between readiness of the node and the first measurement of usage."""

EVENT_SECONDS: Final = 1.0
"""Time to send the last events."""
_ZONE: Final = "topology.kubernetes.io/zone"


def run(
    config: NodeConfig,
    begun: SupervisorStart | None,
    find: Callable[[], ApiAccess],
    ready: Callable[[], None],
) -> None:
    """Run until SIGTERM or SIGINT. `begun` is a supervisor that is starting, `find` waits for the
    address of the server, `ready` is called once the node is registered. Containers continue to run
    when the agent ends."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        handlers=[BoundedLogHandler("node.log")],
    )
    gc.set_threshold(20_000, 20, 50)
    raise_limit()
    uvloop.run(_run(config, begun, find, ready))


async def _run(
    config: NodeConfig,
    begun: SupervisorStart | None,
    find: Callable[[], ApiAccess],
    ready: Callable[[], None],
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_error)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        pauses = LoopPauses()
        stack.enter_context(watched(SystemClock(), pauses))
        agent = await Agent.begin(config, begun, pauses, stack)
        access = await asyncio.to_thread(find)
        is_network_lost = False
        try:
            async with asyncio.TaskGroup() as tasks:
                work = tasks.create_task(agent.run(access, ready))
                await stop.wait()
                work.cancel()
        except* NetworkLost:
            is_network_lost = True
        if is_network_lost:
            raise SystemExit("the network of pods ended with the supervisor")


class NetworkLost(Exception):
    """The node's network is gone; the next agent creates a new one."""


class PodNetworkState(NamedTuple):
    """The bridge of a node, or why it has none."""

    bridge: Bridge | None
    refusal: str = ""


class Agent:
    """The components of one node."""

    def __init__(
        self,
        config: NodeConfig,
        runtime: EmbeddedRuntime,
        images: ImageService,
        store: ImageStore,
        network: PodNetworkState,
        machines: "OtherMachines | None",
        devices: NodeDevices,
        host_image: HostImage,
        pauses: LoopPauses,
    ) -> None:
        self._config = config
        self._host_image = host_image
        self._pauses = pauses
        self._clock = SystemClock()
        self._runtime = runtime
        self._images = images
        self._store = store
        self._bridge = network.bridge
        self._no_bridge = network.refusal
        self._way_out: WayOut | None = None
        self._machines = machines
        self._devices = devices
        self._machine = machine.read(config.state)

    @classmethod
    async def begin(
        cls,
        config: NodeConfig,
        begun: SupervisorStart | None,
        pauses: LoopPauses,
        stack: AsyncExitStack,
    ) -> "Agent":
        """Create the components that need no server."""
        for directory in (config.pods, config.logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            spread(str(directory))
        store = ImageStore(config.images, SystemClock())
        mapping = ImageMapping.parse(config.image_map)
        shown = host.host_image(
            own=config.hidden, shown=config.host_image_shown, is_enabled=config.host_image
        )
        images = ImageService(
            store, RegistryClient(), mapping, node=str(config.state), has_host=shown.is_enabled
        )
        underlay = find_underlay(config.underlay_address)
        network = await find_bridge(config, begun, pod_mtu(underlay, config.node_network))
        devices = find_devices(config, stack)
        # A pod that can connect to these sockets could allocate devices of other pods.
        hidden = (*config.hidden, *devices.places)
        runtime = await EmbeddedRuntime.open(
            config.runtime,
            images,
            network=network.bridge,
            hidden=hidden,
            host_image=shown,
            listed=config.listed,
            begun=begun,
        )
        stack.push_async_callback(runtime.close)
        bridge, machines = network.bridge, None
        if bridge is not None:
            stack.callback(bridge.close)
            # A namespace of its own has no link to other machines.
            if bridge.namespace.is_machine:
                machines = OtherMachines.find(config, underlay)
        return cls(config, runtime, images, store, network, machines, devices, shown, pauses)

    async def run(self, access: ApiAccess, ready: Callable[[], None]) -> None:
        """Run until cancelled."""
        config, clock = self._config, self._clock
        client = access.client(f"kedge-node/v{KUBERNETES}")
        server = NodeServer(client, self._runtime, config.name, clock, self._pauses)
        try:
            claimed = await self._open_network(client)
            port = await server.listen(config.address, config.port, access.serving())
            address = await self._internal_address(server, port, access)
            node = self._node_object(address, port)
            devices = self._devices
            exposed = config.exposed_labels
            this = NodeRegistration(
                client, clock, node, self._images_in_status, devices, exposed, claimed
            )
            recorder = Recorder(client, clock, "kubelet", config.name)
            sources, following = (
                ReferencedObjects(client, clock),
                ConfigObjectWatches(client, clock),
            )
            may_mount = self._runtime.level is RuntimeLevel.FULL
            csi = CsiRegistry(clock, devices.kubelet.in_pods)
            storage = NodeStorage(
                config,
                devices.kubelet,
                client,
                sources,
                this,
                recorder,
                clock,
                registered=csi,
                may_mount=may_mount,
            )
            volumes = PodVolumes(
                config.pods,
                config.state / "memory",
                sources,
                following,
                this,
                recorder,
                clock,
                storage=storage.pods,
                kubelet=devices.kubelet,
                images=self._images,
                pull_secrets=PullSecrets(sources),
                may_mount=may_mount,
            )
            volumes.open()
            environment = EnvironmentVariables(sources, this, volumes.place)
            claims = NodeClaims(
                config.state / "devices",
                client,
                clock,
                slices=NodeSlices(client, config.name, clock),
                environment=environment,
                access=DeviceAccessReview(client, config.device_access),
                pod_changed=lambda uid: pods.wake(uid),
            )
            pods = PodWorkers(
                client,
                self._dependencies(client, recorder, sources, volumes, environment, claims, this),
                config.name,
            )
            devices.connect(this.report_soon, pods.wake, pods.active, pods.exists, claims, csi)
            places = WritablePaths(config.pods, config.runtime)
            eviction = LocalStorageEviction(pods, volumes, places, clock)
            disk = PodDiskPlaces(volumes, places)
            collection = ImageGarbageCollector(
                self._images, lambda *what: recorder.record(this.node, "Warning", *what), clock
            )
            self._write_record(port)
            carrying = await self._open_services(access)
            policies = PolicyWatch(client, clock)
            enforcing = self._enforcement(policies, PolicyEvents(recorder, config.name), carrying)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(policies.run())
                tasks.create_task(enforcing)
                for work in (this, recorder, sources, following, volumes, pods, devices, claims):
                    tasks.create_task(work.run())
                tasks.create_task(server.run(pods))
                tasks.create_task(eviction.run())
                tasks.create_task(collection.run())
                if self._bridge is not None:
                    tasks.create_task(self._bridge.run())
                    others = self._other_machines(self._bridge, client, recorder, this, port)
                    if others is not None:
                        tasks.create_task(others.run())
                    watch = ServiceWatch(client, clock)
                    checks = ServiceHealthChecks(
                        watch,
                        address,
                        lambda: _place(this.node),
                        recorder,
                        clock,
                        self._bridge.namespace.socket,
                    )
                    tasks.create_task(checks.run())
                    if self._way_out is not None:
                        tasks.create_task(self._way_out.run(_address(access.url)))
                    tasks.create_task(
                        self._carry_services(self._bridge, carrying, watch, this, others)
                    )
                    tasks.create_task(self._serve_names(self._bridge, client, sources))
                await this.registered.wait()
                tasks.create_task(self._record_restarts(recorder, this))
                renewal = CertificateRenewal(access, client, clock, config.name, address)
                tasks.create_task(
                    renewal.run(requests_serving=bool(node_record.read_server(config.state)))
                )
                await pods.synced.wait()
                await devices.simulated()
                gc.freeze()
                gc.enable()
                ready()
                tasks.create_task(storage.run())
                tasks.create_task(self._measure(pods, disk, storage, this, client, server))
        finally:
            if self._way_out is not None:
                self._way_out.close()
            await server.close()
            await client.close()

    async def _open_network(self, client: Client) -> Node | None:
        """Claim the pod network and create the bridge; return the Node that has the network. A
        namespace without a link to the machine's network has a way out in user space."""
        bridge = self._bridge
        if bridge is None:
            return None
        claim = PodNetworkClaim(client, self._clock, bridge)
        claimed = await claim.claim(lambda: self._node_object("", 0))
        bridge.add_bridge()
        if not bridge.namespace.is_machine:
            self._way_out = await WayOut.open(bridge.namespace, bridge.gateway, self._runtime)
        await bridge.add_rules(self._way_out.ports if self._way_out is not None else None)
        return claimed

    def _other_machines(
        self,
        bridge: Bridge,
        client: Client,
        recorder: Recorder,
        this: NodeRegistration,
        port: int,
    ) -> NodeNetwork | None:
        """Return what leads to the pods of other machines; None if there can be none."""
        if self._machines is None or bridge.refusal:
            return None

        def report(told: str) -> None:
            this.annotate(NODE_NETWORK, told)
            self._write_record(port, told)

        def warn(sentence: str) -> None:
            log.warning("%s", sentence)
            recorder.record(this.node, WARNING, "PodsUnreachable", sentence)

        machines = self._machines
        own = NodeSite(
            self._config.name, bridge.network, machines.underlay.address, machines.setting
        )
        return NodeNetwork(
            client,
            self._clock,
            bridge,
            own,
            machines.underlay,
            lack=machines.lack,
            report=report,
            warn=warn,
        )

    async def _open_services(self, access: ApiAccess) -> tuple[str, int]:
        """Return the address at which rules reach the API server."""
        server = _address(access.url)
        return server if self._bridge is None else await self._bridge.open_server(server)

    def _enforcement(
        self, watch: PolicyWatch, events: PolicyEvents, server: tuple[str, int]
    ) -> Coroutine[None, None, None]:
        """Return the work that enforces NetworkPolicies or, where that is impossible, says so."""
        bridge = self._bridge
        if bridge is None or bridge.refusal:
            return report_unenforced(watch, events, self._network_policy)
        dns = bridge.gateway if self._config.dns != "none" else None
        enforcer = PolicyEnforcer(
            watch,
            bridge.policies,
            bridge.attached,
            events,
            self._clock,
            network=bridge.network,
            hosted=hosted_ports(server, dns),
            way_out=bridge.way_out,
        )
        return enforcer.run()

    async def _carry_services(
        self,
        bridge: Bridge,
        server: tuple[str, int],
        watch: ServiceWatch,
        this: NodeRegistration,
        others: NodeNetwork | None,
    ) -> None:
        """Carry connections to Services: that of the API server first, others once they are
        known."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch.run())
            if bridge.refusal:
                await UserspaceProxy(watch, bridge, _place(this.node), self._clock).run()
            if bridge.ends_with_supervisor:
                place, reach = _place(this.node), loopback_addresses
                outer = UserspaceProxy(watch, bridge, place, self._clock, reach)
                tasks.create_task(outer.run())
            proxy = ServiceProxy(watch, bridge.table, lambda: _place(this.node), self._clock)
            proxy.pin(str(SERVICE), "TCP", SERVICE_PORT, server)
            if self._config.dns != "none":
                for protocol in ("TCP", "UDP"):
                    here = (str(bridge.gateway), DNS_PORT)
                    proxy.pin(str(DNS_SERVICE), protocol, DNS_PORT, here)
            if others is not None and bridge.table.was_taken_over:
                # The table of the previous agent lets other machines in; this one must do so too.
                await others.ready.wait()
            await proxy.run()

    async def _record_restarts(self, recorder: Recorder, this: NodeRegistration) -> None:
        """Record events on the node about restarts of its agent and its supervisor."""
        if reason := self._config.restart_reason:
            message = f"The node agent {reason}; it was restarted, and containers kept running"
            recorder.record(this.node, WARNING, "AgentRestarted", message)
        if self._no_bridge:
            message = f"Pods have no addresses of their own: {self._no_bridge}"
            recorder.record(this.node, WARNING, "NoPodNetwork", message)
        while True:
            message = await self._runtime.restarted()
            log.warning("supervisor restarted pid=%d", self._runtime.supervisor)
            recorder.record(this.node, WARNING, "SupervisorRestarted", message)
            if self._bridge is not None and self._bridge.ends_with_supervisor:
                await self._clock.sleep(EVENT_SECONDS)
                raise NetworkLost

    async def _measure(
        self,
        pods: PodWorkers,
        disk: PodDiskPlaces,
        storage: NodeStorage,
        this: NodeRegistration,
        client: Client,
        server: NodeServer,
    ) -> None:
        """Measure the usage of pods. Nothing waits for it, so even its import is delayed until the
        rest has started."""
        await self._clock.sleep(MEASURE_AFTER_SECONDS)
        from kedge.node.stats.measure import measure

        await measure(
            self._config,
            self._machine,
            self._runtime,
            pods,
            [client],
            self._clock,
            places=disk,
            volumes=storage.pods,
            uid=lambda: this.node.metadata.uid,
            tell=server.serve_usage,
        )

    def _dependencies(
        self,
        client: Client,
        recorder: Recorder,
        sources: ReferencedObjects,
        volumes: PodVolumes,
        environment: EnvironmentVariables,
        claims: NodeClaims,
        this: NodeRegistration,
    ) -> PodDependencies:
        config = self._config
        files = PodFiles(config.pods, config.logs)
        return PodDependencies(
            runtime=self._runtime,
            images=self._images,
            pull_secrets=PullSecrets(sources),
            volumes=volumes,
            environment=environment,
            devices=self._devices,
            claims=claims,
            device_access=DeviceAccessReview(client, config.device_access),
            cgroups=self._cgroups(),
            user_ids=UserNamespaces(self._runtime, files),
            events=recorder,
            files=files,
            runtime_classes=RuntimeClassChecker(client),
            this_node=this,
            clock=self._clock,
            host_dns=_machine_dns,
            cluster_dns=lambda: self._dns_address(sources),
            host_hosts=_machine_hosts,
            seccomp_profiles=config.state / "seccomp",
            security_modules=security_modules.enabled(),
            network=self._bridge.namespace if self._bridge is not None else MACHINE,
        )

    async def _serve_names(
        self, bridge: Bridge, client: Client, sources: ReferencedObjects
    ) -> None:
        """Answer the DNS queries of pods, if the cluster has no other DNS server. The import runs
        while the node waits for the API server."""
        from kedge.node.network.cluster_dns import ClusterDns, DnsAddress, release_sockets

        if self._config.dns == "none":
            await release_sockets(self._runtime)
            return
        # Packet rules lead from the Service's address to the gateway's.
        addresses = [DnsAddress(bridge.gateway)]
        if bridge.refusal:
            addresses.append(DnsAddress(DNS_SERVICE, bridge.link))
        await ClusterDns(
            client,
            sources.services,
            self._clock,
            addresses,
            lambda: _machine_dns().servers,
            self._runtime,
            bridge.namespace,
        ).run()

    async def _dns_address(self, sources: ReferencedObjects) -> str | None:
        """Return the address of the cluster's DNS server; None if pods have no network of their
        own to reach it."""
        if self._bridge is None:
            return None
        from kedge.node.network.cluster_dns import service_address

        return await service_address(sources.services)

    def _cgroups(self) -> PodCgroups:
        if self._runtime.level is not RuntimeLevel.FULL:
            return NoCgroups(self._machine.memory)
        config = self._config
        return PodCgroupTree(cgroups.here(), config.cgroup, self._machine.memory, config.max_pids)

    async def _internal_address(self, server: NodeServer, port: int, access: ApiAccess) -> str:
        """Return the address of the node, after listening there too."""
        config = self._config
        gateway = str(self._bridge.gateway) if self._bridge is not None else ""
        address = internal_address(config.address, gateway)
        if address != config.address:
            try:
                make = self._bridge.namespace.socket if self._bridge else socket.socket
                await server.listen(address, port, access.serving(), make)
            except OSError as error:
                log.warning("node keeps address=%s: %s", config.address, error)
                return config.address
        return address

    def _node_object(self, address: str, port: int) -> Node:
        cidr = str(self._bridge.network) if self._bridge is not None else ""
        return registration.node_object(
            self._config,
            self._machine,
            self._runtime.level,
            port=port,
            address=address,
            pod_cidr=cidr,
            user_namespaces=not self._runtime.no_user_namespaces,
            annotations=self._annotations(),
        )

    def _annotations(self) -> dict[str, str]:
        said = {
            registration.SERVICE_PROXY: self._service_proxy,
            ENFORCEMENT_ANNOTATION: self._network_policy,
            MANAGED_ATTACHMENT: "true",
        }
        if self._machines is not None:
            said[MACHINE_ADDRESS] = str(self._machines.underlay.address)
            said[NODE_NETWORK] = self._node_network
        return said

    @property
    def _node_network(self) -> str:
        """How this node reaches the pods of other machines, before it knows any."""
        if self._machines is None or self._bridge is None:
            return ""
        if self._bridge.refusal:
            return f"none ({self._bridge.refusal})"
        return described(self._machines.setting, PeerPlan(), self._machines.lack)

    @property
    def _network_policy(self) -> str:
        """How this node enforces NetworkPolicies, as `kedge status` and the Node report it."""
        if self._bridge is None:
            return "none: pods have no addresses of their own"
        refusal = self._bridge.refusal
        return f"none: {refusal}" if refusal else ENFORCED

    @property
    def _service_proxy(self) -> str:
        """How this node carries Services, as `kedge status` and the Node report it."""
        if self._bridge is None:
            return f"none: pods have no addresses of their own: {self._no_bridge}"
        refusal = self._bridge.refusal
        return f"userspace: {refusal}" if refusal else "nftables"

    def _images_in_status(self) -> Sequence[ContainerImage]:
        return [
            ContainerImage(names=[*each.digests, *each.names], sizeBytes=each.record.size)
            for each in self._store.listed()
        ]

    def _write_record(self, port: int, node_network: str = "") -> None:
        config, level = self._config, self._runtime.level
        written = node_record.NodeRecord(
            name=config.name,
            cluster=config.cluster,
            level=level.value,
            cgroup=config.cgroup if level is RuntimeLevel.FULL else "",
            port=port,
            pod_cidr=str(self._bridge.network) if self._bridge is not None else "",
            service_proxy=self._service_proxy,
            machine_address=config.machine_address,
            node_network=node_network or self._node_network,
            network_policy=self._network_policy,
            host_image=self._host_image,
        )
        node_record.write(config.state, written)


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


class PullSecrets:
    """Reads imagePullSecrets. Fulfils dependencies.PullSecretReader."""

    def __init__(self, sources: ReferencedObjects) -> None:
        self._sources = sources

    async def of(self, pod: Pod) -> Sequence[Secret]:
        found = []
        for reference in pod.spec.imagePullSecrets:
            try:
                secret = await self._sources.secret(pod.metadata.namespace, reference.name)
            except StatusError:
                # A secret that the node may not read counts as missing; the pull then reports the
                # failure.
                continue
            if secret is not None:
                found.append(secret)
        return found


def find_devices(config: NodeConfig, stack: AsyncExitStack) -> NodeDevices:
    """Return the node's devices, with a directory that other agents cannot use until the stack
    ends."""
    directory, claim = find_directory(config.plugins, config.own_plugins)
    if claim is not None:
        stack.callback(claim.close)
    own = config.state / "devices"
    return NodeDevices(directory, own, SystemClock(), simulated=config.devices)


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


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 443


def _place(node: Node) -> NodePlace:
    return NodePlace(node.metadata.name, node.metadata.labels.get(_ZONE, ""), CLUSTER)


def _machine_dns() -> DnsConfig:
    return resolv_conf(_read("/etc/resolv.conf"))


def _machine_hosts() -> str:
    return _read("/etc/hosts")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
