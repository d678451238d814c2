"""The node agent: builds everything that a node consists of, and runs it."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import uvloop

from kedge import KUBERNETES
from kedge.client.client import Client
from kedge.client.events import WARNING, Recorder
from kedge.machinery.clock import Clock, SystemClock, machine_clock, usage_clock
from kedge.machinery.open_files import raise_limit
from kedge.node import components, foundation
from kedge.node.components import NodeComponents
from kedge.node.config import NodeConfig
from kedge.node.foundation import NodeFoundation
from kedge.node.host import node_record
from kedge.node.host.api_access import ApiAccess
from kedge.node.host.certificates import CertificateRenewal
from kedge.node.host.machine import is_disk_short
from kedge.node.host.node_description import NodeDescription
from kedge.node.host.registration import NodeRegistration
from kedge.node.network.addresses import internal_address
from kedge.node.network.node_sites import NodeSites
from kedge.node.runtime.spawn import SupervisorStart
from kedge.node.server.server import NodeServer
from kedge.node.traffic import NodeTraffic, open_network
from kedge.restarter.bounded_log import BoundedLogHandler
from kedge.web.server import log_loop_error
from kedge.web.watchdog import LoopPauses, watched

if TYPE_CHECKING:
    from kedge.client.clock_follower import ClockFollower

log = logging.getLogger(__name__)

KUBELET_PORT: Final = 10250
"""Where kubelets listen. Nodes of one machine share an address, so each has another port there."""
MEASURE_AFTER_SECONDS: Final = 0.5
"""Seconds between readiness of the node and the first measurement of usage."""

EVENT_SECONDS: Final = 1.0
"""Time to send the last events."""


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
        agent = Agent(await foundation.create(config, begun, pauses, stack))
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


async def _return_free_memory(clock: Clock) -> None:
    # Imported here: a node has no use for it before it is ready.
    from kedge.machinery.heap import keep_trimmed

    await keep_trimmed(clock)


class NetworkLost(Exception):
    """The node's network is gone; the next agent creates a new one."""


class Agent:
    """Registers one node and runs its pods."""

    def __init__(self, base: NodeFoundation) -> None:
        self._base = base
        self._config = base.config
        self._description = NodeDescription(base)

    async def run(self, access: ApiAccess, ready: Callable[[], None]) -> None:
        """Run until cancelled."""
        base, name = self._base, self._config.name
        async with AsyncExitStack() as stack:
            client = access.client(f"kedge-node/v{KUBERNETES}")
            stack.push_async_callback(client.close)
            server = NodeServer(
                client,
                base.runtime,
                name,
                base.machine_clock,
                base.pauses,
                base.runtime.exceed_memory if self._config.testing else None,
            )
            stack.push_async_callback(server.close)
            follower = await self._follow_clock(client)
            opened = await open_network(base, client)
            if opened.way_out is not None:
                stack.callback(opened.way_out.close)
            port = await server.listen(self._config.address, self._config.port, access.serving())
            address = await self._internal_address(server, port, access)
            sites = NodeSites()
            this = NodeRegistration(
                client,
                base.clock,
                self._description.node_object(address, port),
                base.images_in_status,
                base.devices,
                self._config.exposed_labels,
                opened.claimed,
                has_disk_pressure=lambda: is_disk_short(self._config.state),
                cluster_size=lambda: len(sites),
            )
            parts = components.connect(base, client, this)
            self._description.write_record(port)
            traffic = NodeTraffic(
                base,
                client,
                parts,
                opened.way_out,
                sites,
                address=address,
                port=port,
                server=_address(access.url),
            )
            renewal = CertificateRenewal(access, client, base.machine_clock, name, address)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(traffic.run())
                for part in parts.tasks:
                    tasks.create_task(part.run())
                tasks.create_task(server.run(parts.pods))
                await this.registered.wait()
                if follower is not None:
                    tasks.create_task(follower.run(this.renew))
                tasks.create_task(self._record_restarts(parts.recorder, this))
                tasks.create_task(self._renew(renewal))
                await parts.pods.synced.wait()
                await base.devices.simulated()
                gc.freeze()
                gc.enable()
                ready()
                tasks.create_task(parts.storage.run())
                tasks.create_task(self._measure(parts, client, server))
                tasks.create_task(_return_free_memory(base.machine_clock))

    async def _follow_clock(self, client: Client) -> "ClockFollower | None":
        """Take over the server's time, in a cluster for tests; return who follows its changes."""
        clock = self._base.clock
        if machine_clock(clock) is clock:
            return None
        from kedge.client.clock_follower import ClockFollower
        from kedge.machinery.travel_clock import TravelClock

        assert isinstance(clock, TravelClock)
        follower = ClockFollower(client, clock)
        return follower if await follower.learn() else None

    async def _internal_address(self, server: NodeServer, port: int, access: ApiAccess) -> str:
        """Return the address of the node, after listening there too."""
        config, bridge = self._config, self._base.network.of_pods
        address = internal_address(config.address, str(bridge.gateway) if bridge else "")
        if address == config.address:
            return address
        make = bridge.namespace.socket if bridge else socket.socket
        try:
            await server.listen(address, port, access.serving(), make)
        except OSError as error:
            log.warning("node keeps address=%s: %s", config.address, error)
            return config.address
        # Programs that do not read the port from the Node expect it here. A machine may have a
        # kubelet that listens at all addresses.
        with contextlib.suppress(OSError):
            if port != KUBELET_PORT:
                await server.listen(address, KUBELET_PORT, access.serving(), make)
        return address

    async def _renew(self, renewal: CertificateRenewal) -> None:
        await renewal.run(requests_serving=bool(node_record.read_server(self._config.state)))

    async def _record_restarts(self, recorder: Recorder, this: NodeRegistration) -> None:
        """Record events on the node about restarts of its agent and its supervisor."""
        if reason := self._config.restart_reason:
            message = f"The node agent {reason}; it was restarted, and containers kept running"
            recorder.record(this.node, WARNING, "AgentRestarted", message)
        bridge, refusal, loopback = self._base.network
        if refusal:
            lack = "share the machine's network" if loopback else "have no addresses of their own"
            message = f"Pods {lack}: {refusal}"
            if loopback and loopback.names.refusal:
                why = loopback.names.refusal
                message = f"{message}; with the image host, Services have no names: {why}"
            recorder.record(this.node, WARNING, "NoPodNetwork", message)
        while True:
            message = await self._base.runtime.restarted()
            log.warning("supervisor restarted pid=%d", self._base.runtime.supervisor)
            recorder.record(this.node, WARNING, "SupervisorRestarted", message)
            if bridge is not None and bridge.ends_with_supervisor:
                await self._base.machine_clock.sleep(EVENT_SECONDS)
                raise NetworkLost

    async def _measure(self, parts: NodeComponents, client: Client, server: NodeServer) -> None:
        """Measure the usage of pods. Nothing waits for it, so even its import is delayed until the
        rest has started."""
        await self._base.machine_clock.sleep(MEASURE_AFTER_SECONDS)
        from kedge.node.stats.measure import measure

        await measure(
            self._config,
            self._base.machine,
            self._base.runtime,
            parts.pods,
            [client],
            usage_clock(self._base.clock),
            places=parts.disk,
            volumes=parts.storage.pods,
            uid=lambda: parts.registration.node.metadata.uid,
            tell=server.serve_usage,
        )


def _address(url: str) -> tuple[str, int]:
    """Return the address of the server, of the first one if there are several."""
    parts = urlsplit(url.partition(",")[0])
    return parts.hostname or "", parts.port or 443
