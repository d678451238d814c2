"""The running API server: store, cache, application and listener, started in this order."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import SystemRandom
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kedge.api.builtin import schemas
from kedge.api.catalog import BUILT_IN, KUBE_APISERVER
from kedge.api.core_v1 import event
from kedge.api.core_v1.pod import pod
from kedge.apiserver import (
    bootstrap,
    default_storage,
    identities,
    joining,
    pki,
    server_addresses,
    tokens,
)
from kedge.apiserver.agents import Agents
from kedge.apiserver.aggregation.aggregator import Aggregator
from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.run import FrontProxyPki, aggregate
from kedge.apiserver.api import Api
from kedge.apiserver.app import App
from kedge.apiserver.assembly import (
    admission_configuration,
    application,
    assemble,
    control_steps,
    fault_table,
    in_flight,
)
from kedge.apiserver.audit import AuditLog
from kedge.apiserver.authentication import jwt, token_file
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.authentication.keys import SigningKey, SigningKeyError
from kedge.apiserver.authorization import policy
from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.config import POLICY_STATUS, ServerConfig
from kedge.apiserver.crd.registrar import Registrar
from kedge.apiserver.flow_control import (
    ensure_flow_control,
    keep_conditions,
)
from kedge.apiserver.health import ServerLifecycle, StartStep
from kedge.apiserver.identities import OutsideIdentities
from kedge.apiserver.local_nodes import LocalNodes
from kedge.apiserver.own_writes import unless_refused
from kedge.apiserver.policies.type_check_status import PolicyTypeChecks
from kedge.apiserver.scheduling_decisions import nowhere
from kedge.apiserver.webhooks.services import Resolver
from kedge.machinery import reserve_files
from kedge.machinery.clock import Clock, machine_clock
from kedge.machinery.errors import StatusError
from kedge.machinery.garbage import keep_searching
from kedge.machinery.heap import keep_trimmed
from kedge.machinery.interfaces import is_reachable
from kedge.machinery.write_guard import WriteGuard
from kedge.settings.parse import POSTGRESQL
from kedge.storage.compaction import keep_history
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import Store, StoreError
from kedge.web.cluster_network import network_of
from kedge.web.server import HttpServer
from kedge.web.watchdog import LoopPauses

if TYPE_CHECKING:
    from kedge.apiserver.several.servers import SeveralServers

log = logging.getLogger(__name__)

ROOT: Final = "/registry/"
"""The beginning of all keys."""
RESERVE_SECONDS: Final = 5.0
"""How often the reserve files are checked."""
RANGE_SECONDS: Final = 10.0
"""How often the default ServiceCIDR is created again if it was deleted."""
SETTLE_SECONDS: Final = 0.5
"""Time from the first answer to the work that can wait."""


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
        listener: HttpServer,
        several: "SeveralServers | None" = None,
    ) -> None:
        self.app = app
        self._listener = listener
        self._several = several
        self.local_nodes = nodes
        self.url = url
        self.ca_pem = identity.ca_pem
        self.token = token
        self._pki = identity.directory
        self._key = key

    def stop_listening(self) -> None:
        """Accept no further connections; those that exist are served on."""
        self._listener.stop_listening()

    def has_peers(self) -> bool:
        """Return whether other servers of the same store are alive."""
        return self._several is not None and bool(self._several.membership.peers)

    async def begin_term(self, office: str, lease_revision: int) -> WriteGuard | None:
        """Return what guards the writes of a leader, who wrote its Lease at this revision; None if
        no other server can lead. Raises StatusError."""
        return await self._several.begin_term(office, lease_revision) if self._several else None

    def sign(self, claims: Any) -> str:
        """Return a service account token with these claims."""
        return jwt.sign(self._key, claims)

    def sign_request(
        self, csr_pem: bytes, uses: Sequence[str], lifetime: timedelta, now: datetime
    ) -> bytes:
        """Return the certificate for a signing request; ValueError if the request is unusable."""
        return pki.sign_request(self._pki, csr_pem, uses, lifetime, now)


class ServerParts(NamedTuple):
    """The parts of one server that answers requests."""

    config: ServerConfig
    api: Api
    app: App
    listener: HttpServer
    lifecycle: ServerLifecycle
    aggregator: Aggregator
    extensions: ExtensionServers
    outside: OutsideIdentities
    audit_log: AuditLog | None
    registrar: Registrar
    several: "SeveralServers | None"
    """The other servers; None if there can be none."""

    def tasks(
        self, identity: pki.ServerIdentity, hosts: Sequence[str]
    ) -> list[Coroutine[Any, Any, None]]:
        """Return the work that runs as long as the server, from its first moment."""
        api, clock = self.api, self.api.clock
        return [
            api.cache.run(),
            api.cache.shorten(clock),
            api.allocator.run(),
            *(work() for work in api.work),
            self.listener.sweep(),
            keep_trimmed(clock),
            keep_searching(clock),
            api.metrics.run(),
            self.app.flows.run(),
            keep_history(api.store, clock),
            keep_reserve_files(api.store, self.config.state, clock),
            pki.keep_renewed(identity, hosts, machine_clock(clock)),
            *(work() for work in self.outside.tasks),
            *(() if self.several is None else self.several.tasks()),
        ]

    async def close(self) -> None:
        """Stop answering, and close connections to other servers."""
        self.lifecycle.stop()
        await self.listener.close()
        if self.several is not None:
            await self.several.leave()
        await self.api.caller.close()
        self.extensions.close()
        for close in self.outside.closing:
            await close()
        if self.audit_log is not None:
            self.audit_log.close()


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
        pki.ensure_node(
            config.pki, name, (name, at), config.node_pki(name), machine_clock(clock).now()
        )
    token = tokens.ensure(config.token_file)
    store = await open_store(config, clock)
    try:
        if config.has_shared_store:
            from kedge.apiserver.several import identity as cluster_identity

            await asyncio.to_thread(key.prepare)
            await cluster_identity.check(store, config.pki)
            async with cluster_identity.founding(store, clock):
                is_new = await begin(store, clock, config.first_objects)
        else:
            is_new = await begin(store, clock, config.first_objects, has_nodes=not config.is_alone)
        parts = await build(config, clock, store, identity, token, key, pauses, components)
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(work) for work in parts.tasks(identity, hosts)]
            parts.lifecycle.finish(StartStep.CACHES)
            try:
                await parts.registrar.load()
                parts.lifecycle.finish(StartStep.CUSTOM_RESOURCES)
                context = pki.listening_context(identity, config.serving)
                if parts.several is not None:
                    await parts.several.join()
                port = await parts.listener.listen(config.host, config.port, context)
                if parts.several is not None:
                    url = await own_url(parts, port, context)
                    await parts.several.announce(url, reachable_address(config, port))
                await ensure_objects(
                    parts.api, config, port, identity, parts.lifecycle, is_new=is_new
                )
                nodes = local_nodes(parts.api, config, port, parts.listener, identity)
                later = (
                    parts.registrar.run(),
                    *policy_type_checks(parts.api, config),
                    bootstrap.keep(parts.api),
                    keep_conditions(parts.api),
                    settle(parts.api, config, key, clock),
                    load_key(parts.api, key),
                    aggregate(
                        parts.api,
                        parts.aggregator,
                        front_proxy(parts, identity),
                        partial(parts.lifecycle.finish, StartStep.REGISTRATION),
                    ),
                    nodes.run(),
                    *endpoints(parts, port),
                    *await scrapers(parts),
                )
                background += [group.create_task(work) for work in later]
                parts.lifecycle.finish(StartStep.CONTROLLERS)
                url = server_addresses.local(config, port)
                yield ApiServer(
                    parts.app, url, identity, token, key, nodes, parts.listener, parts.several
                )
            finally:
                await parts.close()
                for task in background:
                    task.cancel()
    finally:
        await store.close()


def reachable_address(config: ServerConfig, port: int) -> str:
    """Return the host and the port of this server for others; empty if they do not reach it."""
    host = server_addresses.advertised_host(config)
    return f"{host} {port}" if is_reachable(host) else ""


def endpoints(parts: ServerParts, port: int) -> Sequence[Coroutine[Any, Any, None]]:
    """Return the work that publishes all servers; none if this one publishes itself, once."""
    host = server_addresses.advertised_host(parts.config)
    if parts.several is None or not is_reachable(host):
        return ()
    return (parts.several.endpoints(host, port).run(),)


async def own_url(parts: ServerParts, port: int, context: SSLContext) -> str:
    """Return the address at which other servers reach this one and no other; listen there."""
    if parts.config.servers > 1:
        host = server_addresses.peer_host(parts.config)
        return server_addresses.url(host, await parts.listener.listen(host, 0, context))
    return server_addresses.advertised(parts.config, port)


async def build(
    config: ServerConfig,
    clock: Clock,
    store: Store,
    identity: pki.ServerIdentity,
    token: str,
    key: SigningKey,
    pauses: LoopPauses | None,
    components: ControlPlaneComponents | None,
) -> ServerParts:
    """Build a server on a store; `token` is that of its administrator."""
    host, network = server_addresses.advertised_host(config), network_of(config.nodes)
    faults = fault_table(config)
    api = await assemble(
        store,
        clock,
        config.admission,
        upstream_only=config.upstream_only,
        agents=Agents(config.pki, network),
        network=network,
        usage_window=config.metrics_window,
        node_ports=config.node_ports,
        service_network=config.service_network,
        resources=KUBE_APISERVER if config.is_alone else BUILT_IN,
        device_access=config.device_access,
        configuration=admission_configuration(config),
        faults=faults,
        is_shared=config.has_shared_store,
    )
    audit_log = AuditLog(config.audit_log) if config.audit_log is not None else None
    users = token_file.read(config.token_auth_file) if config.token_auth_file else {}
    outside = identities.configured(config, clock, identity, api.caller.budget)
    identities.configure_authorizers(api, outside, config, clock)
    identities.follow_encryption(outside, store, config)
    lifecycle = ServerLifecycle()
    extensions = ExtensionServers(Resolver(api.cache), config.front_proxy_pki, network)
    aggregator = Aggregator(api, extensions)
    registrar = Registrar(api)
    several = several_servers(config, api, registrar)
    app = application(
        api,
        {**users, token: ADMIN},
        key,
        lambda: server_addresses.url(host, listener.port).removeprefix("https://"),
        lifecycle,
        components=components,
        in_flight=in_flight(config),
        seats=config.max_requests_inflight + config.max_mutating_requests_inflight,
        aggregator=aggregator,
        audit_log=audit_log,
        pauses=pauses,
        outside=outside,
        extend_tokens=config.extend_tokens,
        controls=control_steps(api, faults),
        decisions_elsewhere=nowhere if several is None else several.decisions.answer,
    )
    listener = HttpServer(
        app.handle if several is None else several.before(app.handle),
        machine_clock(clock),
        screen=app.screen,
        refused=api.metrics.refused_unread,
        comma_headers=outside.comma_headers,
        shares_ports=config.servers > 1,
    )
    return ServerParts(
        config,
        api,
        app,
        listener,
        lifecycle,
        aggregator,
        extensions,
        outside,
        audit_log,
        registrar,
        several,
    )


def several_servers(
    config: ServerConfig, api: Api, registrar: Registrar
) -> "SeveralServers | None":
    """Return what connects this server to others of its store; None if there can be none."""
    if not config.has_shared_store:
        return None
    from kedge.apiserver.several.servers import SeveralServers

    return SeveralServers(api, registrar.settled, config.identity, config.pki)


def front_proxy(parts: ServerParts, identity: pki.ServerIdentity) -> FrontProxyPki:
    """Return the certificates that the server and its extension servers trust each other by."""
    own = parts.config.front_proxy_pki
    files = parts.config.serving
    clients = files.client_authority if files is not None else None
    authority = clients.read_bytes() if clients is not None else identity.ca_pem
    return FrontProxyPki(own, authority, parts.outside.trusted_proxies)


async def scrapers(parts: ServerParts) -> Sequence[Coroutine[Any, Any, None]]:
    """Return the work that reads the usage of stock kubelets, if that is asked for."""
    if not parts.config.scrape_kubelets:
        return ()
    from kedge.apiserver.metrics.scrape import scraper

    return ((await scraper(parts.config, parts.api, parts.app.telemetry)).run(),)


async def ensure_objects(
    api: Api,
    config: ServerConfig,
    port: int,
    identity: pki.ServerIdentity,
    lifecycle: ServerLifecycle,
    *,
    is_new: bool,
) -> None:
    """Create the objects that every cluster has, unless they exist; a new one has its default
    roles already."""
    host = server_addresses.advertised_host(config)
    # With others there are more endpoints than that of this server.
    own = "" if config.has_shared_store else host
    await bootstrap.ensure(api, own, port, dns=config.dns == "cluster")
    lifecycle.finish(StartStep.SYSTEM_OBJECTS)
    if not is_new:
        await policy.ensure(api)
    lifecycle.finish(StartStep.ROLES)
    if not config.is_alone:
        url = server_addresses.advertised(config, port)
        await joining.ensure(api, url, identity.ca_pem, name=config.name)
    if config.local_registry:
        from kedge.apiserver import local_registry

        await unless_refused(local_registry.ensure(api, config.local_registry))
    lifecycle.finish(StartStep.CLUSTER_INFO)


async def open_store(config: ServerConfig, clock: Clock) -> Store:
    store: Store
    if config.store == "memory":
        from kedge.storage.memory import MemoryStore

        store = MemoryStore(clock)
    elif config.etcd_endpoints:
        from kedge.apiserver.etcd_stores import open_etcd

        store = await open_etcd(config, clock)
    elif config.store.startswith(POSTGRESQL):
        from kedge.apiserver.postgres_stores import open_postgresql

        store = await open_postgresql(config, clock)
    else:
        store = await SqliteStore.open(config.database, clock)
    if config.encryption_config is None:
        return store
    from kedge.apiserver.store_protection import ConfiguredStore

    try:
        protected = ConfiguredStore(
            store, config.encryption_config, clock, is_followed=config.encryption_reload
        )
    except BaseException:
        await store.close()
        raise
    try:
        await protected.start()
    except BaseException:
        await protected.close()
        raise
    return protected


async def begin(
    store: Store, clock: Clock, copied: Path | None = None, *, has_nodes: bool = True
) -> bool:
    """Write the first objects if the store is empty, or those of the file `copied`; returns whether
    it was."""
    if (await store.list(ROOT, limit=1)).entries:
        return False
    # Not needed again until the end of the cluster.
    from kedge.apiserver import first_objects

    if copied is None:
        await first_objects.write_first(store, clock, SystemRandom(), has_nodes=has_nodes)
        return True
    from kedge.apiserver import objects_file

    content = await asyncio.to_thread(copied.read_bytes)
    await first_objects.copy(store, clock, objects_file.decode(content))
    return True


async def keep_reserve_files(store: Store, state: Path, clock: Clock) -> None:
    """Keep reserve files on disk for the next start, whenever there is enough space. Runs until
    cancelled."""
    while True:
        if not store.failure:
            await asyncio.to_thread(reserve_files.ensure, state)
        await clock.sleep(RESERVE_SECONDS)


def policy_type_checks(api: Api, config: ServerConfig) -> list[Coroutine[Any, Any, None]]:
    """Return the work of the only controller that is a part of the server, if it is enabled."""
    return [PolicyTypeChecks(api).run()] if POLICY_STATUS in config.controllers else []


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
            if "DefaultStorageClass" in config.admission and not config.is_alone:
                await default_storage.ensure(api)
            if not key.is_made:
                from kedge.apiserver import issuer_process

                await asyncio.to_thread(issuer_process.make_signing_key, config.pki)
            while True:
                # Again and again, as in Kubernetes: built-in objects that were deleted come back.
                await ensure_flow_control(api)
                # Again and again: a cluster without its default ServiceCIDR gives out no addresses.
                await bootstrap.ensure_range(api)
                await clock.sleep(RANGE_SECONDS)
        except (OSError, StoreError, StatusError) as error:
            # The server continues without them. On a full disk the code that needs them reports
            # the error.
            log.error("signing key or address range not prepared, retrying error=%s", error)
            await clock.sleep(RESERVE_SECONDS)


async def load_key(api: Api, key: SigningKey) -> None:
    """Load the key that signs tokens as soon as there is a pod, which is to mount one: an idle
    server does without the library, and the first token does not wait for it."""
    pods = api.cache.of(pod.RESOURCE)
    appeared = asyncio.Event()

    def changed(_: object) -> None:
        appeared.set()

    pods.listeners.add(changed)
    try:
        if not any(True for _ in pods.values()):
            await appeared.wait()
    finally:
        pods.listeners.discard(changed)
    try:
        await asyncio.to_thread(key.prepare)
    except (OSError, SigningKeyError) as error:
        # A request for a token gets the error, and its client tries again.
        log.error("signing key not loaded error=%s", error)


def local_nodes(
    api: Api, config: ServerConfig, port: int, listener: HttpServer, identity: pki.ServerIdentity
) -> LocalNodes:
    """Return the nodes that run beside the server."""

    async def certify(name: str, address: str) -> None:
        first = config.local_nodes.get(name, "")
        if address == first:
            return  # it is in the certificate that the node started with
        hosts = [each for each in (name, first, address) if each]
        theirs = config.node_pki(name)
        # Not above: nodes are ready sooner than they need it.
        from kedge.apiserver import issuer_process

        now = machine_clock(api.clock).now()
        await asyncio.to_thread(issuer_process.ensure_serving, config.pki, name, hosts, theirs, now)

    async def listen(host: str) -> None:
        await listener.listen(host, port, identity.context, api.network.listening_maker(host))

    has_endpoints = is_reachable(server_addresses.advertised_host(config))
    return LocalNodes(
        api,
        config.local_nodes,
        port,
        certify=certify,
        listen=None if has_endpoints else listen,
        is_local=lambda name: (config.node_pki(name) / "node.crt").exists(),
    )
