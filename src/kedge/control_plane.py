"""The control plane in one process: API server, controllers and scheduler."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from socket import gethostname
from typing import Any, Final, NamedTuple

import uvloop

from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.config import POLICY_STATUS, ServerConfig
from kedge.apiserver.long_work import bound_threads
from kedge.apiserver.server import ApiServer, serve
from kedge.client.client import Client
from kedge.client.election import ALONE, CONTESTED, Election, ElectionTimes, while_leading
from kedge.client.object_views import ObjectViews
from kedge.client.transport import Call, Handler, LocalTransport
from kedge.controllers.names import SCHEDULER
from kedge.machinery.allocator import return_free_memory
from kedge.machinery.clock import Clock, SystemClock, machine_clock
from kedge.machinery.errors import StatusError
from kedge.machinery.garbage import search_young_only
from kedge.machinery.open_files import raise_limit
from kedge.restarter.bounded_log import BoundedLogHandler
from kedge.web.cluster_network import network_of
from kedge.web.message import HttpRequest, Response
from kedge.web.server import log_loop_error
from kedge.web.watchdog import LoopPauses, watched

log = logging.getLogger(__name__)

OnReady = Callable[[ApiServer], None]
Duty = Callable[[], Coroutine[Any, Any, None]]

CONTROLLER_MANAGER: Final = "kube-controller-manager"
KUBE_SCHEDULER: Final = "kube-scheduler"
SIMULATION: Final = "kedge-simulated-nodes"
NO_HEADERS: Final[Mapping[str, str]] = {}

NODE_SECONDS: Final = 2.0
"""How long controllers and scheduler wait for the nodes that start together with the server. Their
import and their first lists keep the event loop busy for longer than nodes need to become ready."""
RESTART_SECONDS: Final = 0.1
"""The same after a restart of the server alone: nodes that run do not report at once."""
DUTIES: Final = 2
"""Controllers and scheduler: each is imported when this server first leads."""
SETTLE_SECONDS: Final = 0.03
"""Time for the last requests of a node that is ready: it lists its pods."""

SWITCH_SECONDS: Final = 0.0005
"""How long a thread may keep the interpreter's lock while another one waits for it. The event loop
gives the lock away for each TLS record, dozens of times in a turn. With the default of 5 ms,
threads with long work stopped the loop for half a second."""


def run(config: ServerConfig, on_ready: OnReady, log_name: str = "server") -> None:
    """Run until SIGTERM or SIGINT; `on_ready` is called once everything answers."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        handlers=[BoundedLogHandler(f"{log_name}.log")],
    )
    search_young_only()
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_limit()
    return_free_memory()
    uvloop.run(_run(config, on_ready))


async def _run(config: ServerConfig, on_ready: OnReady) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_error)
    bound_threads(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await _serve(config, clock_of(config), on_ready, stop)


def clock_of(config: ServerConfig) -> Clock:
    """Return the clock of the control plane: that of the machine, unless tests may move it."""
    if not config.testing:
        return SystemClock()
    from kedge.machinery.travel_clock import TravelClock

    return TravelClock()


async def _serve(
    config: ServerConfig, clock: Clock, on_ready: OnReady, stop: asyncio.Event
) -> None:
    pauses = LoopPauses()
    components = ControlPlaneComponents(component_names(config))
    async with (
        serve(config, clock, pauses, components) as server,
        asyncio.TaskGroup() as tasks,
    ):
        gateway = await _gateway(server, config, clock)
        if config.simulation.nodes and config.is_first:
            await _register_simulated_nodes(server, config, clock)
        gc.freeze()
        gc.enable()
        on_ready(server)
        # Not before: a start that makes keys keeps no client waiting.
        with watched(machine_clock(clock), pauses):
            offices = elections(server, components, config, clock, pauses)
            work = [tasks.create_task(gateway)] if gateway else []
            await _work(server, offices, config, clock, tasks, stop, work)


async def _work(
    server: ApiServer,
    offices: Sequence[tuple[Election, Duty]],
    config: ServerConfig,
    clock: Clock,
    tasks: asyncio.TaskGroup,
    stop: asyncio.Event,
    others: Sequence["asyncio.Task[None]"],
) -> None:
    """Run controllers and scheduler until the server is to stop; `others` end then too."""
    if config.local_nodes:
        patience = RESTART_SECONDS if config.restart_reason else NODE_SECONDS
        await server.local_nodes.wait_until_ready(patience)
        await clock.sleep(SETTLE_SECONDS)
    work = [*others, *(tasks.create_task(office.lead(duty)) for office, duty in offices)]
    if config.restart_reason:
        work.append(tasks.create_task(record_restart(server, config.restart_reason, clock)))
    await stop.wait()
    if server.has_peers():
        # New connections go to the other servers from now on.
        server.stop_listening()
    for task in work:
        task.cancel()
    if work:
        await asyncio.wait(work)
    for office, _ in offices:
        await office.resign()


async def _gateway(
    server: ApiServer, config: ServerConfig, clock: Clock
) -> Coroutine[Any, Any, None] | None:
    """Let the gateway listen; returns its work, or None if there is no gateway."""
    from kedge.gateway import listening

    if not config.is_first:
        return None
    if not config.gateway:
        listening.forget(config.state)
        return None
    from kedge.gateway.run import open_gateway

    client = Client(LocalTransport(in_process_handler(server), clock), user_agent="kedge-gateway")
    gateway = await open_gateway(
        client,
        clock,
        config.state,
        port=config.gateway_port,
        published=config.published_ports,
        certificate=(config.pki / "server.crt", config.pki / "server.key"),
        network=network_of(config.nodes),
    )

    async def serve_until_cancelled() -> None:
        try:
            await gateway.run()
        except Exception:
            # The API server goes on without it.
            log.exception("gateway ended")

    return serve_until_cancelled()


async def _register_simulated_nodes(server: ApiServer, config: ServerConfig, clock: Clock) -> None:
    """Create the simulated nodes before the server is ready, so that clients find all of them."""
    from kedge.simulated_nodes.node_object import TAINT
    from kedge.simulated_nodes.registration import register

    await register(
        Client(LocalTransport(in_process_handler(server), clock), user_agent=SIMULATION),
        clock,
        config.simulation.nodes,
        resources=config.simulation.resources,
        taints=[TAINT] if config.simulated_nodes_have_taint else [],
    )


async def record_restart(server: ApiServer, reason: str, clock: Clock) -> None:
    """Record an event about a restart of the server on the service `kubernetes`."""
    from kedge.api.core_v1.references import ObjectReference
    from kedge.api.core_v1.service import RESOURCE
    from kedge.client.events import WARNING, Recorder, reference_to

    client = Client(LocalTransport(in_process_handler(server)), user_agent="kube-apiserver")
    recorder = Recorder(client, clock, "kube-apiserver", gethostname())
    try:
        service = await client.get(RESOURCE, "kubernetes", "default")
        about = reference_to(service)
    except StatusError:
        # An administrator may have deleted it.
        about = ObjectReference(
            apiVersion="v1", kind="Service", namespace="default", name="kubernetes"
        )
    message = f"The API server {reason}; it was restarted"
    recorder.record(about, WARNING, "ServerRestarted", message)
    await recorder.run()


def component_names(config: ServerConfig) -> list[str]:
    """Return the components that run beside the API server in this process."""
    is_managed = any(name not in (SCHEDULER, POLICY_STATUS) for name in config.controllers)
    managing = [CONTROLLER_MANAGER] if is_managed else []
    return [*managing, *([KUBE_SCHEDULER] if SCHEDULER in config.controllers else ())]


def elections(
    server: ApiServer,
    components: ControlPlaneComponents,
    config: ServerConfig,
    clock: Clock,
    pauses: LoopPauses,
) -> Sequence[tuple[Election, Duty]]:
    """Return the duties that only one of several servers does, each with its leader election.

    A duty is imported when this server becomes its leader, so that the first answers of the server
    do not wait for the import. It takes a tenth of a second, and is the last part of the start:
    pauses count from then on.
    """
    identity = config.identity
    views = ObjectViews()
    found = []
    for name in component_names(config):
        election = Election(
            _prompt_client(server, name),
            clock,
            name,
            identity,
            partial(election_times, server),
            server.begin_term,
        )
        components.report(name, election.failure)
        duty = LeaderDuties(server, components, config, clock, pauses, election, views)
        found.append((election, duty.schedule if name == KUBE_SCHEDULER else duty.control))
    return found


def election_times(server: ApiServer) -> ElectionTimes:
    """Return how fast leaders change: fast while there are other servers, who each wait for it."""
    return CONTESTED if server.has_peers() else ALONE


class LeaderDuties(NamedTuple):
    """The work of a leader, in the process of its server."""

    server: ApiServer
    components: ControlPlaneComponents
    config: ServerConfig
    clock: Clock
    pauses: LoopPauses
    election: Election
    views: ObjectViews

    async def control(self) -> None:
        """Run the controllers until cancelled."""
        from kedge.controllers.controllers import Controllers
        from kedge.controllers.loop import together

        await _end_start(self.clock, self.pauses)
        controllers = Controllers(
            self._client(CONTROLLER_MANAGER),
            self.clock,
            self.server.ca_pem,
            self.server.sign,
            self.server.sign_request,
            admission=self.config.admission,
            enabled=self.config.controllers,
            node_grace=self.config.node_grace,
            node_ports=self.config.node_ports,
            load_balancers=self.config.load_balancer_network,
            views=self.views,
        )
        self.components.report(CONTROLLER_MANAGER, controllers.failure)
        try:
            await together(controllers.run(), self._simulate())
        finally:
            self.components.report(CONTROLLER_MANAGER, self.election.failure)

    async def schedule(self) -> None:
        """Run the scheduler until cancelled."""
        from kedge.scheduler.scheduler import Scheduler

        await _end_start(self.clock, self.pauses)
        scheduler = Scheduler(
            self._client(KUBE_SCHEDULER),
            self.clock,
            usage=self.config.scheduler_usage,
            views=self.views,
        )
        self.components.report(KUBE_SCHEDULER, scheduler.failure)
        self.components.set_scheduler(scheduler)
        try:
            await scheduler.run()
        finally:
            self.components.set_scheduler(None)
            self.components.report(KUBE_SCHEDULER, self.election.failure)

    async def _simulate(self) -> None:
        """Simulate the nodes that ask for it, beside the controllers: one server does both."""
        if self.config.upstream_only and not self.config.simulation.nodes:
            return
        from kedge.simulated_nodes.on_demand import simulate

        await simulate(
            self._client(SIMULATION),
            self._client_of_node,
            self.clock,
            self.config.node_grace,
            self.views,
        )

    def _client_of_node(self, name: str) -> Client:
        """Return a client that acts as a node, so that rules and faults for nodes count. Its calls
        do not wait for their turn among all background work: a node whose lease is renewed late is
        unreachable, and thousands of pods that start keep a busy machine busy for longer."""
        identity = {"impersonate-user": f"system:node:{name}", "impersonate-group": "system:nodes"}
        handler = while_leading(self.election, in_process_handler(self.server, identity))
        return Client(LocalTransport(handler), user_agent=SIMULATION)

    def _client(self, name: str) -> Client:
        handler = while_leading(self.election, in_process_handler(self.server))
        return Client(LocalTransport(handler, self.clock), user_agent=name)


def _prompt_client(server: ApiServer, name: str) -> Client:
    """Return a client whose calls do not wait for their turn among all background work: a leader
    that renews its lease late loses it."""
    return Client(LocalTransport(in_process_handler(server)), user_agent=name)


async def _end_start(clock: Clock, pauses: LoopPauses) -> None:
    """Exempt imported modules from garbage collection, and count pauses from now on. A server
    whose lease expires, because it was late, leads again without a start."""
    if pauses.starts < DUTIES:
        gc.freeze()
        await clock.sleep(0)
        pauses.start_over()


def in_process_handler(server: ApiServer, identity: Mapping[str, str] = NO_HEADERS) -> Handler:
    """Return a handler that calls the server of this process, as its administrator, unless the
    headers of an identity say otherwise."""

    def handle(call: Call) -> Response | Awaitable[Response]:
        headers = {**call.headers, **identity, "authorization": f"Bearer {server.token}"}
        return server.app.handle(
            HttpRequest(call.method, call.path, call.query, headers, call.body)
        )

    return handle
