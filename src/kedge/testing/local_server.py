"""An API server without a network: requests go directly to the App, on a MemoryStore."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import msgspec

from kedge.api.protobuf import decoder as protobuf
from kedge.api.protobuf.messages import MEDIA_TYPE
from kedge.apiserver import bootstrap
from kedge.apiserver.api import Api
from kedge.apiserver.app import NO_CONTROLS, App
from kedge.apiserver.assembly import application, assemble
from kedge.apiserver.audit import AuditLog
from kedge.apiserver.authentication.authenticator import ADMIN
from kedge.apiserver.authentication.keys import SigningKey
from kedge.apiserver.authorization import policy
from kedge.apiserver.components import ControlPlaneComponents
from kedge.apiserver.crd.registrar import Registrar
from kedge.apiserver.health import ServerLifecycle, StartStep
from kedge.apiserver.identities import NONE, OutsideIdentities
from kedge.apiserver.policies.type_check_status import PolicyTypeChecks
from kedge.apiserver.testing.controls import ClusterControls
from kedge.apiserver.testing.fault_table import FaultTable
from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.settings.device_access import DeviceAccessRule
from kedge.settings.service_defaults import NODE_PORTS
from kedge.storage.memory import MemoryStore
from kedge.storage.store import StoreEntry
from kedge.testing.clock import FakeClock
from kedge.web.exchange import ServerAddress
from kedge.web.message import HttpRequest, Response

TOKEN = "secret"
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
YAML = "application/yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True)
class LocalAnswer:
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    warnings: list[str]
    """The texts of the Warning headers."""
    data: bytes
    """The body."""

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def document(self) -> Any:
        if self.headers["Content-Type"] == MEDIA_TYPE:
            return protobuf.decode(self.data)
        return msgspec.json.decode(self.data)

    @property
    def reason(self) -> str:
        return str(self.document.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.document.get("message", ""))


class RecordingSink:
    """A peer that records the bytes it gets, and reads only while it is not paused."""

    def __init__(self) -> None:
        self.data = b""
        self.lines: list[bytes] = []
        self._reading = asyncio.Event()
        self._reading.set()
        self._gone = False

    @property
    def paused(self) -> bool:
        return not self._reading.is_set()

    def pause(self) -> None:
        self._reading.clear()

    def resume(self) -> None:
        self._reading.set()

    def leave(self) -> None:
        self._gone = True
        self._reading.set()

    def write(self, data: bytes) -> None:
        self.data += data
        self.lines += data.splitlines()

    async def drain(self) -> None:
        await self._reading.wait()
        if self._gone:
            raise ConnectionResetError("the client has gone")


class LocalWatch:
    """A running watch."""

    def __init__(
        self, server: "LocalServer", sink: RecordingSink, task: asyncio.Task[None]
    ) -> None:
        self.sink = sink
        self._server = server
        self._task = task

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def events(self) -> list[dict[str, Any]]:
        """Everything received so far."""
        await self._server.settle()
        if self._task.done() and not self._task.cancelled():
            self._task.result()
        return [msgspec.json.decode(line) for line in self.sink.lines]

    async def seen(self) -> list[tuple[str, str]]:
        """(type, name) of everything received so far."""
        return [
            (event["type"], event["object"].get("metadata", {}).get("name", ""))
            for event in await self.events()
        ]


@cache
def _signing_key() -> SigningKey:
    """One key for all servers of a test run, generated at the first signature."""
    return SigningKey(Path(_key_directory().name))


@cache
def _key_directory() -> TemporaryDirectory[str]:
    """The directory of that key, which is deleted when the process ends."""
    return TemporaryDirectory(prefix="kedge-keys-")


_ROLES: Final[dict[str, list[StoreEntry]]] = {}
"""The default roles and bindings, by the time of their creation."""


async def _ensure_roles(api: Api) -> None:
    """Write the default roles and bindings to a new store. The first server of a process creates
    them, which takes most of its start; later ones copy them."""
    store, now = api.store, api.timestamp()
    if now in _ROLES:
        for entry in _ROLES[now]:
            await store.put(entry.key, entry.value, expect=0)
        await api.cache.reached(store.revision)
        return
    before = store.revision
    await policy.ensure(api)
    made = [entry for entry in (await store.list("")).entries if entry.revision > before]
    _ROLES[now] = sorted(made, key=lambda entry: entry.revision)


class LoopbackAgents:
    """Finds agents where their nodes say, without TLS."""

    def address(self, node: Mapping[str, Any]) -> ServerAddress:
        endpoint = node["status"]["daemonEndpoints"]["kubeletEndpoint"]
        return ServerAddress(node["status"]["addresses"][0]["address"], endpoint["Port"])


class LocalServer:
    """An API server in this process, with a clock that stands still."""

    def __init__(
        self,
        store: MemoryStore,
        clock: FakeClock,
        app: App,
        lifecycle: ServerLifecycle,
        components: ControlPlaneComponents,
    ) -> None:
        self.store = store
        self.clock = clock
        self.app = app
        self.lifecycle = lifecycle
        self.components = components
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        store: MemoryStore | None = None,
        clock: FakeClock | None = None,
        *,
        admission: Sequence[str] = ("NamespaceLifecycle",),
        upstream_only: bool = False,
        usage_window: str = "10s",
        node_ports: range = NODE_PORTS,
        device_access: Sequence[DeviceAccessRule] = (),
        components: ControlPlaneComponents | None = None,
        audit_log: AuditLog | None = None,
        outside: OutsideIdentities = NONE,
        is_for_tests: bool = False,
        is_shared: bool = False,
    ) -> AsyncIterator[Self]:
        """Serve while the context is open; on a store that another server left, if given. One that
        is for tests has the pages under /testing."""
        clock = clock or FakeClock()
        is_new = store is None
        store = store or MemoryStore(clock)
        faults = FaultTable() if is_for_tests else None
        api = await assemble(
            store,
            clock,
            admission,
            upstream_only=upstream_only,
            agents=LoopbackAgents(),
            usage_window=usage_window,
            node_ports=node_ports,
            device_access=device_access,
            faults=faults,
            is_shared=is_shared,
        )
        lifecycle = ServerLifecycle()
        components = components or ControlPlaneComponents()
        app = application(
            api,
            {TOKEN: ADMIN},
            _signing_key(),
            lambda: "127.0.0.1:6443",
            lifecycle,
            components=components,
            audit_log=audit_log,
            outside=outside,
            controls=ClusterControls(api, faults).steps() if faults else NO_CONTROLS,
        )
        server = cls(store, clock, app, lifecycle, components)
        try:
            await server._begin(api)
            await (_ensure_roles(api) if is_new else policy.ensure(api))
            for step in StartStep:
                lifecycle.finish(step)
            yield server
        finally:
            await server.close()

    async def _begin(self, api: Api) -> None:
        """Start the work of a server, and create what every cluster has."""
        self.start(api.cache.run())
        self.start(api.allocator.run())
        for work in api.work:
            self.start(work())
        registrar = Registrar(api)
        await registrar.load()
        self.start(registrar.run())
        self.start(PolicyTypeChecks(api).run())
        await bootstrap.ensure(api, "127.0.0.1", 6443)
        await bootstrap.ensure_range(api)

    @property
    def client(self) -> Client:
        """The administrator, as controllers and agents see the server."""
        return self.client_with({})

    def client_of_node(self, name: str) -> Client:
        """A node, as its agent sees the server."""
        return self.client_with(
            {"impersonate-user": f"system:node:{name}", "impersonate-group": "system:nodes"}
        )

    def client_with(self, sent: Mapping[str, str]) -> Client:
        """The administrator, with additional headers."""
        return Client(self.transport_with(sent), user_agent="kedge-test")

    def transport_with(self, sent: Mapping[str, str]) -> LocalTransport:
        """Requests of the administrator, with additional headers."""

        def handle(call: Call) -> Response | Awaitable[Response]:
            headers = {**call.headers, **sent, "authorization": f"Bearer {TOKEN}"}
            return self.app.handle(
                HttpRequest(call.method, call.path, call.query, headers, call.body)
            )

        return LocalTransport(handle)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background until the server is closed."""
        # The server owns the task: closing it ends the task.
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, ConnectionError):
                raise result

    async def settle(self) -> None:
        """Let all tasks of the server act at this moment."""
        await self.clock.advance(0)

    async def call(
        self,
        method: str,
        url: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = "",
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> LocalAnswer:
        """One request; a body that is not bytes is sent as JSON."""
        response = await self._respond(
            _request(method, url, body, content_type, accept, token, headers)
        )
        content = response.body
        assert not callable(content), "use watch() for streams"
        data = content if isinstance(content, bytes) else b"".join(content)
        pairs = response.headers
        return LocalAnswer(
            status=response.status,
            headers={"Content-Type": response.content_type, **dict(pairs)},
            warnings=[value for name, value in pairs if name == "Warning"],
            data=data,
        )

    async def get(self, url: str, **options: Any) -> Any:
        """The document behind a URL that must be there."""
        return _good(await self.call("GET", url, **options))

    async def post(self, url: str, body: object, **options: Any) -> Any:
        """Create, which must succeed; returns the object."""
        return _good(await self.call("POST", url, body, **options))

    async def put(self, url: str, body: object, **options: Any) -> Any:
        return _good(await self.call("PUT", url, body, **options))

    async def merge(self, url: str, body: object, **options: Any) -> Any:
        """A merge patch, which must succeed; returns the object."""
        return _good(await self.call("PATCH", url, body, content_type=MERGE, **options))

    async def apply(self, url: str, body: object, **options: Any) -> LocalAnswer:
        return await self.call("PATCH", url, body, content_type=APPLY, **options)

    async def delete(self, url: str, body: object = None, **options: Any) -> Any:
        return _good(await self.call("DELETE", url, body, **options))

    async def watch(self, url: str, *, accept: str = "", paused: bool = False) -> LocalWatch:
        """Open a watch, whose peer may not read yet; an answer that is no stream fails the test."""
        response = await self._respond(_request("GET", url, None, JSON, accept, TOKEN, None))
        assert response.status == 200, response.body
        assert callable(response.body), response.body
        sink = RecordingSink()
        if paused:
            sink.pause()
        task = self.start(_ended(response.body(sink)))
        watching = LocalWatch(self, sink, task)
        await self.settle()
        return watching

    async def _respond(self, request: HttpRequest) -> Response:
        answer = self.app.handle(request)
        response = answer if isinstance(answer, Response) else await answer
        await self.settle()
        return response


def _request(
    method: str,
    url: str,
    body: object,
    content_type: str,
    accept: str,
    token: str | None,
    headers: Mapping[str, str] | None,
) -> HttpRequest:
    path, _, query = url.partition("?")
    sent = {"user-agent": "test/1.0", **(headers or {})}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    if accept:
        sent["accept"] = accept
    data = b""
    if body is not None:
        sent["content-type"] = content_type
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return HttpRequest(method, path, query, sent, data)


def _good(answer: LocalAnswer) -> Any:
    assert answer.status in (200, 201), answer.text
    return answer.document


async def _ended(stream: Any) -> None:
    await stream
