"""The running API server: store, cache, application and listener, started in this order."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from kedge.api.builtin import schemas
from kedge.api.catalog import Catalog
from kedge.api.core_v1 import event, namespace, node, service
from kedge.api.core_v1.pod import pod
from kedge.api.resource import Resource
from kedge.apiserver import (
    bootstrap,
    default_storage,
    identities,
    joining,
    pki,
    server_addresses,
    tokens,
)
from kedge.apiserver.admission import configuration as admission_files
from kedge.apiserver.admission import plugins
from kedge.apiserver.admission.chain import AdmissionPlugin, Chain
from kedge.apiserver.admission.configuration import UNCONFIGURED, AdmissionConfiguration
from kedge.apiserver.admission.device_access import DeviceAccess
from kedge.apiserver.admission.device_claims import DeviceClaims
from kedge.apiserver.admission.signing_requests import SigningRequests
from kedge.apiserver.admission.unenforced_policies import UnenforcedPolicies
from kedge.apiserver.agents import AgentLocator, Agents
from kedge.apiserver.aggregation.aggregator import Aggregator
from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.run import FrontProxyPki, aggregate
from kedge.apiserver.allocation.address_records import AddressRecords
from kedge.apiserver.allocation.pod_networks import PodNetworks
from kedge.apiserver.allocation.service_allocator import ServiceAllocator
from kedge.apiserver.api import Api
from kedge.apiserver.app import App
from kedge.apiserver.audit import AuditLog
from kedge.apiserver.authentication import jwt, token_file
from kedge.apiserver.authentication.authenticator import ADMIN, Authenticator
from kedge.apiserver.authentication.keys import SigningKey
from kedge.apiserver.authentication.openid import OpenId
from kedge.apiserver.authentication.token_requests import TokenRequests
from kedge.apiserver.authorization import policy
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.authorization.escalation import Escalation
from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.config import UPSTREAM_ADMISSION, ServerConfig
from kedge.apiserver.crd.registrar import Registrar
from kedge.apiserver.documents import Documents
from kedge.apiserver.fairness.flow_controller import FlowController
from kedge.apiserver.fairness.flow_metrics import add_flow_metrics
from kedge.apiserver.flow_control import (
    VERSION,
    default_objects,
    ensure_flow_control,
    report_conditions,
)
from kedge.apiserver.health import HealthChecks, ServerLifecycle, server_checks
from kedge.apiserver.identities import OutsideIdentities
from kedge.apiserver.inflight import InFlight, RequestLimit
from kedge.apiserver.local_nodes import LocalNodes
from kedge.apiserver.metrics.cluster import node_reports
from kedge.apiserver.pages import Pages
from kedge.apiserver.policies.type_check_status import PolicyTypeChecks
from kedge.apiserver.request import User
from kedge.apiserver.scheduling_decisions import SchedulingDecisions
from kedge.apiserver.telemetry import Telemetry
from kedge.apiserver.watchcache import WatchCache
from kedge.apiserver.webhooks.caller import Caller
from kedge.apiserver.webhooks.services import Resolver
from kedge.machinery import reserve_files
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.machinery.heap import keep_trimmed
from kedge.machinery.interfaces import is_reachable
from kedge.metrics.windows import SHORTEST
from kedge.settings.device_access import DeviceAccessRule
from kedge.settings.service_defaults import NODE_PORTS
from kedge.storage.compaction import keep_history
from kedge.storage.memory import MemoryStore
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import Store, StoreError
from kedge.web.cluster_network import MACHINE, ClusterNetwork, network_of
from kedge.web.server import HttpServer
from kedge.web.watchdog import LoopPauses

log = logging.getLogger(__name__)

RESERVE_SECONDS: Final = 5.0
"""How often the reserve files are checked."""
RANGE_SECONDS: Final = 10.0
"""How often the default ServiceCIDR is created again if it was deleted."""
SEATS: Final = 600
"""Requests that are worked on at once, of all priority levels."""
UNLIMITED_SEATS: Final = 1_000_000
SETTLE_SECONDS: Final = 0.5
"""Time from the first answer to the work that can wait."""

CRDS: Final = "start-apiextensions-controllers"
SERVICES: Final = "bootstrap-controller"
ROLES: Final = "rbac/bootstrap-roles"
CLUSTER_INFO: Final = "cluster-info"
HOOKS: Final = (CRDS, SERVICES, ROLES, CLUSTER_INFO)
"""Work that the server does once before it is ready, under upstream's names where there are any."""


class ApiServer:
    """An API server that answers requests."""

    def __init__(
        self,
        app: App,
        url: str,
        identity: pki.ServerIdentity,
        token: str,
        key: SigningKey,
        nodes: LocalNodes,
    ) -> None:
        self.app = app
        self.local_nodes = nodes
        self.url = url
        self.ca_pem = identity.ca_pem
        self.token = token
        self._pki = identity.directory
        self._key = key

    def sign(self, claims: Any) -> str:
        """Return a service account token with these claims."""
        return jwt.sign(self._key, claims)

    def sign_request(
        self, csr_pem: bytes, uses: Sequence[str], lifetime: timedelta, now: datetime
    ) -> bytes:
        """Return the certificate for a signing request; ValueError if the request is unusable."""
        return pki.sign_request(self._pki, csr_pem, uses, lifetime, now)


@asynccontextmanager
async def serve(
    config: ServerConfig,
    clock: Clock,
    pauses: LoopPauses | None = None,
    components: ControlPlaneComponents | None = None,
) -> AsyncIterator[ApiServer]:
    """Serve while the context is open. `pauses` are those of the event loop; `components` are
    the controllers and the scheduler that run in the same process."""
    hosts = server_addresses.hosts(config)
    key = SigningKey(config.pki)
    key.check()
    identity = pki.ensure(config.pki, hosts)
    for name, at in config.local_nodes.items():
        pki.ensure_node(config.pki, name, (name, at), config.node_pki(name), clock.now())
    token = tokens.ensure(config.token_file)
    store = await open_store(config, clock)
    network = network_of(config.nodes)
    try:
        api = await assemble(
            store,
            clock,
            config.admission,
            upstream_only=config.upstream_only,
            agents=Agents(config.pki, network),
            network=network,
            usage_window=config.metrics_window,
            node_ports=config.node_ports,
            device_access=config.device_access,
            configuration=admission_configuration(config),
        )
        address = ""
        trail = AuditLog(config.audit_log) if config.audit_log is not None else None
        users = token_file.read(config.token_auth_file) if config.token_auth_file else {}
        outside = identities.configured(config, clock, identity)
        identities.configure_authorizers(api.authorizer, outside, config, clock)
        lifecycle = ServerLifecycle(HOOKS)
        proxy_pki = config.pki / "front-proxy"
        extensions = ExtensionServers(Resolver(api.cache), proxy_pki, network)
        aggregator = Aggregator(api, extensions)
        app = application(
            api,
            {**users, token: ADMIN},
            key,
            lambda: address,
            lifecycle,
            components=components,
            in_flight=in_flight(config),
            seats=config.max_requests_inflight + config.max_mutating_requests_inflight,
            aggregator=aggregator,
            audit_log=trail,
            pauses=pauses,
            outside=outside,
            extend_tokens=config.extend_tokens,
        )
        listener = HttpServer(
            app.handle,
            clock,
            screen=app.screen,
            refused=api.metrics.refused_unread,
            comma_headers=outside.comma_headers,
        )
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(api.cache.run()),
                tasks.create_task(api.allocator.run()),
                tasks.create_task(listener.sweep()),
                tasks.create_task(keep_trimmed(clock)),
                tasks.create_task(api.metrics.run()),
                tasks.create_task(app.flows.run()),
                tasks.create_task(keep_history(store, clock)),
                tasks.create_task(keep_reserve_files(store, config.state, clock)),
                tasks.create_task(pki.keep_renewed(identity, hosts, clock)),
                *(tasks.create_task(work()) for work in outside.tasks),
            ]
            registrar = Registrar(api)
            await registrar.load()
            lifecycle.finish(CRDS)
            background.append(tasks.create_task(registrar.run()))
            background.append(tasks.create_task(PolicyTypeChecks(api).run()))
            port = await listener.listen(config.host, config.port, identity.context)
            url = server_addresses.local(config, port)
            address = server_addresses.advertised(config, port).removeprefix("https://")
            await ensure_objects(api, config, port, identity, lifecycle)
            background.append(tasks.create_task(settle(api, config, key, clock)))
            proxy_certificates = FrontProxyPki(proxy_pki, identity.ca_pem, outside.trusted_proxies)
            aggregation = aggregate(api, aggregator, proxy_certificates)
            background.append(tasks.create_task(aggregation))
            nodes = local_nodes(api, config, port, listener, identity)
            background.append(tasks.create_task(nodes.run()))
            if config.scrape_kubelets:
                from kedge.apiserver.metrics.scrape import scraper

                reading = await scraper(config, api, app.telemetry)
                background.append(tasks.create_task(reading.run()))
            try:
                yield ApiServer(app, url, identity, token, key, nodes)
            finally:
                lifecycle.stop()
                await listener.close()
                await api.caller.close()
                extensions.close()
                for close in outside.closing:
                    await close()
                if trail is not None:
                    trail.close()
                for task in background:
                    task.cancel()
    finally:
        await store.close()


async def ensure_objects(
    api: Api,
    config: ServerConfig,
    port: int,
    identity: pki.ServerIdentity,
    lifecycle: ServerLifecycle,
) -> None:
    """Create the objects that every cluster has, unless they exist."""
    host = server_addresses.advertised_host(config)
    await bootstrap.ensure(api, host, port, dns=config.dns == "cluster")
    lifecycle.finish(SERVICES)
    await policy.ensure(api)
    lifecycle.finish(ROLES)
    await joining.ensure(api, server_addresses.advertised(config, port), identity.ca_pem)
    lifecycle.finish(CLUSTER_INFO)


async def keep_reserve_files(store: Store, state: Path, clock: Clock) -> None:
    """Keep reserve files on disk for the next start, whenever there is enough space. Runs until
    cancelled."""
    while True:
        if not store.failure:
            await asyncio.to_thread(reserve_files.ensure, state)
        await clock.sleep(RESERVE_SECONDS)


async def settle(api: Api, config: ServerConfig, key: SigningKey, clock: Clock) -> None:
    """Prepare what takes a while and no request needs yet; nodes that start at the same time come
    first. Then keep the default ServiceCIDR until cancelled."""
    await clock.sleep(SETTLE_SECONDS)
    await asyncio.to_thread(schemas.prepare)
    for kind in (pod, event):
        await clock.give_way()
        # Computed once for each type; otherwise the first pod would wait for it.
        _ = kind.RESOURCE.schema, kind.RESOURCE.extensions
    while True:
        try:
            if "DefaultStorageClass" in config.admission:
                await default_storage.ensure(api)
            await asyncio.to_thread(key.prepare)
            while True:
                # Again and again, as in Kubernetes: built-in objects that were deleted come back.
                await ensure_flow_control(api)
                await report_conditions(api)
                # Again and again: a cluster without its default ServiceCIDR gives out no addresses.
                await bootstrap.ensure_range(api)
                await clock.sleep(RANGE_SECONDS)
        except (OSError, StoreError, StatusError) as error:
            # The server continues without them. On a full disk the code that needs them reports
            # the error.
            log.error("signing key or address range not prepared, retrying error=%s", error)
            await clock.sleep(RESERVE_SECONDS)


def local_nodes(
    api: Api, config: ServerConfig, port: int, listener: HttpServer, identity: pki.ServerIdentity
) -> LocalNodes:
    """Return the nodes that run beside the server."""

    async def certify(name: str, address: str) -> None:
        if address == config.local_nodes[name]:
            return  # it is in the certificate that the node started with
        hosts = (name, config.local_nodes[name], address)
        theirs = config.node_pki(name)
        await asyncio.to_thread(
            pki.ensure_serving, config.pki, name, hosts, theirs, api.clock.now()
        )

    async def listen(host: str) -> None:
        await listener.listen(host, port, identity.context, api.network.listening_maker(host))

    has_endpoints = is_reachable(server_addresses.advertised_host(config))
    return LocalNodes(
        api, config.local_nodes, port, certify=certify, listen=None if has_endpoints else listen
    )


def application(
    api: Api,
    tokens: Mapping[str, User],
    key: SigningKey,
    address: Callable[[], str],
    lifecycle: ServerLifecycle,
    *,
    components: ControlPlaneComponents | None = None,
    in_flight: InFlight | None = None,
    seats: int = SEATS,
    aggregator: Aggregator | None = None,
    audit_log: AuditLog | None = None,
    pauses: LoopPauses | None = None,
    outside: OutsideIdentities = identities.NONE,
    extend_tokens: bool = True,
) -> App:
    """Return the application on an Api. `tokens` are those of static users; `address` returns the
    host and port under which clients reach the server; `aggregator` forwards to extension
    servers; `outside` knows the users of other issuers."""
    components = components or ControlPlaneComponents()
    counts = telemetry(api, pauses)
    for add in outside.metrics:
        add(counts)
    authenticator = Authenticator(
        tokens,
        api.cache,
        key,
        api.clock,
        outside.authenticators,
        outside.anonymous,
        outside.proxies,
    )
    identities.count_tokens(counts, authenticator)
    flows = flow_controller(api, seats)
    add_flow_metrics(counts, flows)
    checks = server_checks(api.store, api.cache, lifecycle, components)
    return App(
        api,
        authenticator=authenticator,
        token_requests=TokenRequests(key, extends=extend_tokens),
        decisions=SchedulingDecisions(components),
        pages=Pages(
            api,
            openid=OpenId(key, address),
            documents=Documents(
                api.catalog,
                address,
                api.clock,
                api.long_work,
                None if aggregator is None else aggregator.documents,
            ),
            telemetry=counts,
            health=HealthChecks(checks, api.clock),
        ),
        telemetry=counts,
        in_flight=in_flight or InFlight(),
        flows=flows,
        aggregator=aggregator,
        audit_log=audit_log,
    )


def flow_controller(api: Api, seats: int) -> FlowController:
    """Return the controller of priority levels, which share that many seats; 0 sets no limit."""
    kinds = ("FlowSchema", "PriorityLevelConfiguration")
    schemas, levels = (api.catalog.of_kind(VERSION, kind) for kind in kinds)
    assert schemas is not None
    assert levels is not None
    return FlowController(
        api.cache.of(schemas),
        api.cache.of(levels),
        api.clock,
        total=seats or UNLIMITED_SEATS,
        defaults=default_objects(),
    )


def in_flight(config: ServerConfig) -> InFlight:
    """Return the limits of requests; users that keep the cluster alive get half as many again."""
    reads, writes = config.max_requests_inflight, config.max_mutating_requests_inflight
    return InFlight(
        RequestLimit(reads, reads // 2),
        RequestLimit(writes, writes // 2),
        seconds=config.request_timeout,
    )


def admission_configuration(config: ServerConfig) -> AdmissionConfiguration:
    """Return the configurations of admission plugins."""
    path = config.admission_configuration
    return UNCONFIGURED if path is None else admission_files.read(path)


async def open_store(config: ServerConfig, clock: Clock) -> Store:
    store: Store
    if config.store == "memory":
        store = MemoryStore(clock)
    else:
        store = await SqliteStore.open(config.database, clock)
    if config.encryption_config is None:
        return store
    from kedge.apiserver import store_protection

    try:
        return store_protection.encrypted(store, config.encryption_config)
    except BaseException:
        await store.close()
        raise


async def assemble(
    store: Store,
    clock: Clock,
    admission: Sequence[str] = UPSTREAM_ADMISSION,
    *,
    upstream_only: bool = False,
    agents: AgentLocator | None = None,
    network: ClusterNetwork = MACHINE,
    usage_window: str = SHORTEST,
    node_ports: range = NODE_PORTS,
    device_access: Sequence[DeviceAccessRule] = (),
    configuration: AdmissionConfiguration = UNCONFIGURED,
) -> Api:
    """Return an Api on a store, with its watch cache filled."""
    catalog = Catalog(upstream_only=upstream_only)
    cache = WatchCache(store)
    await cache.load(stored_resources(catalog))
    authorizer = Authorizer.following(cache, catalog)
    caller = Caller(Resolver(cache), network)
    given = plugins.Surroundings(cache, catalog, caller, authorizer, clock, configuration)
    chosen = plugins.enabled(admission, given)
    if device_access:
        chosen.append(DeviceAccess(authorizer, device_access))
    # Names and uids must be unique, not unpredictable: one secret seed is enough, and cheaper.
    random = Random(SystemRandom().getrandbits(256))
    allocator = service_allocator(store, cache, catalog, clock, random, node_ports)
    namespaces = cache.of(namespace.RESOURCE)
    always: list[AdmissionPlugin] = [
        SigningRequests(clock),
        UnenforcedPolicies(cache.of(node.RESOURCE)),
        DeviceClaims(
            lambda name: namespaces.get(namespace.RESOURCE.key("", name)), authorizer, clock
        ),
        Escalation(authorizer),
        PodNetworks(cache.of(node.RESOURCE)),
        allocator,
    ]
    return Api(
        store=store,
        cache=cache,
        catalog=catalog,
        admission=Chain([*chosen, *always]),
        allocator=allocator,
        caller=caller,
        authorizer=authorizer,
        metrics=node_reports(cache, clock, usage_window=usage_window),
        agents=agents,
        network=network,
        clock=clock,
        random=random,
    )


def service_allocator(
    store: Store,
    cache: WatchCache,
    catalog: Catalog,
    clock: Clock,
    random: Random,
    ports: range,
) -> ServiceAllocator:
    """Return the allocator of cluster IPs and node ports."""
    ip_addresses = catalog.of_kind("networking.k8s.io/v1", "IPAddress")
    service_cidrs = catalog.of_kind("networking.k8s.io/v1", "ServiceCIDR")
    assert ip_addresses is not None
    assert service_cidrs is not None
    records = AddressRecords(store, cache, ip_addresses, clock, random)
    services = cache.of(service.RESOURCE)
    return ServiceAllocator(services, cache.of(service_cidrs), records, ports, random)


def stored_resources(catalog: Catalog) -> list[Resource]:  # type: ignore[type-arg]
    return [r for r in catalog if r.is_stored and r.store_as is None and "get" in r.verbs]


def telemetry(api: Api, pauses: LoopPauses | None = None) -> Telemetry:
    """Return the counters of the server, and gauges that read its caches."""
    counts = Telemetry(pauses)

    def objects():  # type: ignore[no-untyped-def]
        for cache in api.cache.all():
            labels = f'group="{cache.resource.group}",resource="{cache.resource.plural}"'
            yield labels, len(cache)

    def watchers():  # type: ignore[no-untyped-def]
        for cache in api.cache.all():
            if cache.listeners:
                labels = f'group="{cache.resource.group}",resource="{cache.resource.plural}"'
                yield labels, len(cache.listeners)

    counts.gauge("apiserver_resource_objects", "Objects stored.", objects)
    counts.gauge("apiserver_longrunning_requests", "Watches that are being pushed to.", watchers)

    def frames():  # type: ignore[no-untyped-def]
        for what, number in sorted(api.metrics.counts.items()):
            yield f'outcome="{what}"', number

    counts.counter(
        "kedge_metrics_frames_total", "Reports of nodes, by what became of them.", frames
    )
    counts.gauge(
        "kedge_store_revision", "The newest revision.", lambda: iter([("", api.store.revision)])
    )
    return counts
