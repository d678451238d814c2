"""The API on a store, and the application on the API: everything but the listener."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Network
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final

from kedge.api.builtin.service_networks import SERVICE_RANGE
from kedge.api.catalog import BUILT_IN, Catalog
from kedge.api.core_v1 import namespace, node, resource_quota, service
from kedge.api.resource import Resource
from kedge.apiserver import (
    identities,
)
from kedge.apiserver.admission import configuration as admission_files
from kedge.apiserver.admission import plugins
from kedge.apiserver.admission.chain import AdmissionPlugin, Chain
from kedge.apiserver.admission.configuration import UNCONFIGURED, AdmissionConfiguration
from kedge.apiserver.admission.device_access import DeviceAccess
from kedge.apiserver.admission.device_claims import DeviceClaims
from kedge.apiserver.admission.disabled_plugins import DisabledPlugins
from kedge.apiserver.admission.node_shortfalls import NodeShortfalls
from kedge.apiserver.admission.signing_requests import SigningRequests
from kedge.apiserver.admission.template_basis import TemplateBasis
from kedge.apiserver.agents import AgentLocator
from kedge.apiserver.aggregation.aggregator import Aggregator
from kedge.apiserver.allocation.address_records import AddressRecords
from kedge.apiserver.allocation.pod_networks import PodNetworks
from kedge.apiserver.allocation.service_allocator import ServiceAllocator
from kedge.apiserver.api import Api
from kedge.apiserver.app import NO_CONTROLS, App, ControlSteps
from kedge.apiserver.audit import AuditLog
from kedge.apiserver.authentication.authenticator import Authenticator
from kedge.apiserver.authentication.keys import SigningKey
from kedge.apiserver.authentication.openid import OpenId
from kedge.apiserver.authentication.token_requests import TokenRequests
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.authorization.escalation import Escalation
from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.config import UPSTREAM_ADMISSION, ServerConfig
from kedge.apiserver.documents import Documents
from kedge.apiserver.fairness.flow_controller import FlowController
from kedge.apiserver.fairness.flow_metrics import add_flow_metrics
from kedge.apiserver.flow_control import (
    VERSION,
    default_objects,
)
from kedge.apiserver.health import HealthChecks, ServerLifecycle, server_checks
from kedge.apiserver.identities import OutsideIdentities
from kedge.apiserver.inflight import InFlight, RequestLimit
from kedge.apiserver.metrics.cluster import node_reports
from kedge.apiserver.pages import Pages
from kedge.apiserver.pod_templates import PodTemplates
from kedge.apiserver.quota.first_quota import FirstQuota
from kedge.apiserver.request import User
from kedge.apiserver.scheduling_decisions import Elsewhere, SchedulingDecisions, nowhere
from kedge.apiserver.telemetry import Telemetry
from kedge.apiserver.ui.on_demand import DashboardOnDemand
from kedge.apiserver.watchcache import WatchCache
from kedge.apiserver.webhooks.caller import Caller
from kedge.apiserver.webhooks.services import Resolver
from kedge.machinery.clock import Clock, machine_clock, usage_clock
from kedge.metrics.windows import SHORTEST
from kedge.settings.device_access import DeviceAccessRule
from kedge.settings.service_defaults import NODE_PORTS
from kedge.storage.store import Store
from kedge.web.cluster_network import MACHINE, ClusterNetwork
from kedge.web.watchdog import LoopPauses

if TYPE_CHECKING:
    from kedge.apiserver.allocation.port_records import PortRecords
    from kedge.apiserver.quota.claims import QuotaClaims
    from kedge.apiserver.testing.fault_table import FaultTable

SEATS: Final = 600
"""Requests that are worked on at once, of all priority levels."""
UNLIMITED_SEATS: Final = 1_000_000


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
    service_network: IPv4Network = SERVICE_RANGE,
    resources: Iterable[Resource[Any]] = BUILT_IN,
    device_access: Sequence[DeviceAccessRule] = (),
    configuration: AdmissionConfiguration = UNCONFIGURED,
    faults: "FaultTable | None" = None,
    is_shared: bool = False,
) -> Api:
    """Return an Api on a store, with its watch cache filled. `resources` are the kinds that exist
    from the start. `faults` make calls of webhooks fail on purpose, in clusters for tests.
    `is_shared` says that other programs write to the store."""
    catalog = Catalog(resources, upstream_only=upstream_only)
    cache = WatchCache(store, is_shared=is_shared)
    await cache.load(stored_resources(catalog))
    authorizer = Authorizer.following(cache, catalog)
    caller = webhook_caller(cache, network, faults, clock)
    # Names and uids must be unique, not unpredictable: one secret seed is enough, and cheaper.
    random = Random(SystemRandom().getrandbits(256))
    shared = random if is_shared else None
    quota = FirstQuota(
        cache.of(resource_quota.RESOURCE), lambda: quota_claims(store, cache, clock, shared)
    )
    given = plugins.Surroundings(cache, catalog, caller, authorizer, clock, quota, configuration)
    chosen = plugins.enabled(admission, given)
    if device_access:
        chosen.append(DeviceAccess(authorizer, device_access))
    ports = shared_ports(store, clock) if is_shared else None
    allocator = service_allocator(
        store, cache, catalog, clock, random, node_ports, service_network, ports
    )
    namespaces = cache.of(namespace.RESOURCE)
    always: list[AdmissionPlugin] = [
        SigningRequests(clock),
        DisabledPlugins(frozenset(admission)),
        NodeShortfalls(cache.of(node.RESOURCE)),
        DeviceClaims(
            lambda name: namespaces.get(namespace.RESOURCE.key("", name)), authorizer, clock
        ),
        Escalation(authorizer),
        PodNetworks(cache.of(node.RESOURCE), store if is_shared else None),
        allocator,
    ]
    chain = Chain([*chosen, *always])
    return Api(
        store=store,
        cache=cache,
        catalog=catalog,
        admission=chain,
        pod_templates=PodTemplates(TemplateBasis(chain.counting_nothing, cache, catalog)),
        allocator=allocator,
        caller=caller,
        authorizer=authorizer,
        metrics=node_reports(cache, usage_clock(clock), usage_window=usage_window),
        agents=agents,
        network=network,
        clock=clock,
        random=random,
        work=(quota.run,),
    )


def quota_claims(
    store: Store, cache: WatchCache, clock: Clock, shared: Random | None
) -> "QuotaClaims":
    """Return the claims of writes on quotas. `shared` names the server if others may write to the
    store. A server that is started again is another one: it does not know the writes that it
    admitted before."""
    from kedge.apiserver.quota.ledger import QuotaLedger

    ledger = QuotaLedger(cache, clock)
    if shared is None:
        from kedge.apiserver.quota.local_claims import LocalQuotaClaims

        return LocalQuotaClaims(store, cache, ledger, clock)
    from kedge.apiserver.quota.shared_claims import SharedQuotaClaims

    return SharedQuotaClaims(store, cache, ledger, clock, f"{shared.getrandbits(64):016x}")


def shared_ports(store: Store, clock: Clock) -> "PortRecords":
    """Return the node ports that servers of one store are about to give away."""
    from kedge.apiserver.allocation.port_records import PortRecords

    return PortRecords(store, clock)


def webhook_caller(
    cache: WatchCache, network: ClusterNetwork, faults: "FaultTable | None", clock: Clock
) -> Caller:
    """Return the caller of webhooks; one that fails on purpose if there are rules for it."""
    if faults is None:
        return Caller(Resolver(cache), network)
    from kedge.apiserver.testing.faulty_caller import FaultyCaller

    return FaultyCaller(Resolver(cache), network, faults, clock)


def service_allocator(
    store: Store,
    cache: WatchCache,
    catalog: Catalog,
    clock: Clock,
    random: Random,
    ports: range,
    network: IPv4Network,
    shared: "PortRecords | None" = None,
) -> ServiceAllocator:
    """Return the allocator of cluster IPs and node ports."""
    ip_addresses = catalog.of_kind("networking.k8s.io/v1", "IPAddress")
    service_cidrs = catalog.of_kind("networking.k8s.io/v1", "ServiceCIDR")
    assert ip_addresses is not None
    assert service_cidrs is not None
    records = AddressRecords(store, cache, ip_addresses, clock, random)
    services = cache.of(service.RESOURCE)
    cidrs = cache.of(service_cidrs)
    return ServiceAllocator(services, cidrs, records, ports, random, network, shared)


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
    controls: ControlSteps = NO_CONTROLS,
    decisions_elsewhere: Elsewhere = nowhere,
) -> App:
    """Return the application on an Api. `tokens` are those of static users; `address` returns the
    host and port under which clients reach the server; `aggregator` forwards to extension
    servers; `outside` knows the users of other issuers; `controls` are the steps of a server for
    tests; `decisions_elsewhere` asks other servers for decisions of the scheduler."""
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
    api.caller.metrics.add_to(counts)
    return App(
        api,
        authenticator=authenticator,
        token_requests=TokenRequests(key, extends=extend_tokens),
        decisions=SchedulingDecisions(components, decisions_elsewhere),
        pages=Pages(
            api,
            openid=OpenId(key, address),
            documents=documents(api, address, aggregator),
            telemetry=counts,
            health=health_checks(api, lifecycle, components),
            flows=flows,
        ),
        dashboard=DashboardOnDemand(authenticator, api.clock),
        telemetry=counts,
        in_flight=in_flight or InFlight(),
        flows=flows,
        aggregator=aggregator,
        audit_log=audit_log,
        controls=controls,
    )


def fault_table(config: ServerConfig) -> "FaultTable | None":
    """Return the fault rules of a server for tests; None for every other server."""
    if not config.testing:
        return None
    from kedge.apiserver.testing.fault_table import FaultTable

    return FaultTable()


def control_steps(api: Api, faults: "FaultTable | None") -> ControlSteps:
    """Return the steps of a server with fault rules; none for every other server."""
    if faults is None:
        return NO_CONTROLS
    from kedge.apiserver.testing.controls import ClusterControls

    return ClusterControls(api, faults).steps()


def documents(api: Api, address: Callable[[], str], aggregator: Aggregator | None) -> Documents:
    """Return the discovery and OpenAPI documents, with those of extension servers."""
    others = None if aggregator is None else aggregator.documents
    return Documents(api.catalog, address, api.clock, api.long_work, others)


def health_checks(
    api: Api, lifecycle: ServerLifecycle, components: ControlPlaneComponents
) -> HealthChecks:
    """Return the checks of `/healthz`, `/livez` and `/readyz`."""
    checks = server_checks(api.store, api.cache, lifecycle, components)
    return HealthChecks(checks, machine_clock(api.clock))


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
