"""The running API server: store, cache, application and listener, started in this order."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import SystemRandom

from kedge.api.catalog import Catalog
from kedge.api.core_v1 import service
from kedge.api.resource import Resource
from kedge.apiserver import bootstrap, pki, tokens
from kedge.apiserver.addresses import AddressBook
from kedge.apiserver.admission import plugins
from kedge.apiserver.admission.chain import Chain
from kedge.apiserver.api import Api
from kedge.apiserver.app import App
from kedge.apiserver.authn import ADMIN, Authenticator
from kedge.apiserver.config import UPSTREAM_ADMISSION, ServerConfig
from kedge.apiserver.crd.registrar import Registrar
from kedge.apiserver.documents import Documents
from kedge.apiserver.http import Server
from kedge.apiserver.telemetry import Telemetry
from kedge.apiserver.watchcache import WatchCache
from kedge.machinery.clock import Clock
from kedge.storage.compaction import keep_history
from kedge.storage.memory import MemoryStore
from kedge.storage.sqlite import SqliteStore
from kedge.storage.store import Store


class Running:
    """A server that answers."""

    def __init__(self, app: App, url: str, ca_pem: bytes, token: str) -> None:
        self.app = app
        self.url = url
        self.ca_pem = ca_pem
        self.token = token


@asynccontextmanager
async def serve(config: ServerConfig, clock: Clock) -> AsyncIterator[Running]:
    """Serve while the context is open."""
    identity = pki.ensure(config.pki, (config.host, *config.hosts))
    token = tokens.ensure(config.token_file)
    store = await open_store(config, clock)
    try:
        api = await assemble(store, clock, config.admission)
        address = ""
        documents = Documents(api.catalog, lambda: address, clock)
        app = App(api, Authenticator({token: ADMIN}), documents, telemetry(api))
        listener = Server(app.handle, clock)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(api.cache.run()),
                tasks.create_task(listener.sweep()),
                tasks.create_task(keep_history(store, clock)),
            ]
            registrar = Registrar(api)
            await registrar.load()
            background.append(tasks.create_task(registrar.run()))
            port = await listener.listen(config.host, config.port, identity.context)
            host = f"[{config.host}]" if ":" in config.host else config.host
            address = f"{host}:{port}"
            await bootstrap.ensure(api, config.host, port)
            app.ready = True
            try:
                yield Running(app, f"https://{address}", identity.ca_pem, token)
            finally:
                app.ready = False
                await listener.close()
                for task in background:
                    task.cancel()
    finally:
        await store.close()


async def open_store(config: ServerConfig, clock: Clock) -> Store:
    if config.store == "memory":
        return MemoryStore(clock)
    return await SqliteStore.open(config.database, clock)


async def assemble(
    store: Store, clock: Clock, admission: Sequence[str] = UPSTREAM_ADMISSION
) -> Api:
    """An Api on a store, its cache filled."""
    catalog = Catalog()
    cache = WatchCache(store)
    await cache.load(stored_resources(catalog))
    addresses = AddressBook(cache.of(service.RESOURCE))
    return Api(
        store=store,
        cache=cache,
        catalog=catalog,
        admission=Chain([addresses, *plugins.enabled(admission, cache)]),
        clock=clock,
        random=SystemRandom(),
    )


def stored_resources(catalog: Catalog) -> list[Resource]:  # type: ignore[type-arg]
    return [r for r in catalog if r.store_as is None and "get" in r.verbs]


def telemetry(api: Api) -> Telemetry:
    """Counters, and gauges that look at the caches."""
    counts = Telemetry()

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
    counts.gauge(
        "kedge_store_revision", "The newest revision.", lambda: iter([("", api.store.revision)])
    )
    return counts
