"""The node's HTTPS server: dispatches requests by path."""

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol
from urllib.parse import unquote

from kedge.api.core_v1.pod.container import Container as ContainerConfig
from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.client.client import Client
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError, method_not_allowed
from kedge.machinery.sockets import SocketMaker
from kedge.node.host.inotify import Inotify
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.runtime.runtime import (
    NotFoundError,
    RunState,
    Runtime,
    RuntimeContainer,
    RuntimeFailure,
)
from kedge.node.server import commands, logs, ports, remote
from kedge.node.server.callers import WINDOWS_ROOT, CallerReview
from kedge.node.server.sessions import SessionCounter
from kedge.node.stats.exposition import CONTENT_TYPE
from kedge.web.duplex import Duplex
from kedge.web.limits import ServerLimits
from kedge.web.message import TEXT, HttpRequest, Response, json_response, text_response
from kedge.web.server import HttpServer
from kedge.web.watchdog import LoopPauses

log = logging.getLogger(__name__)

BODY_BYTES: Final = 64 << 10
"""Bytes of a request body; upgrade requests have hardly any."""
TESTING_ROOT: Final = "/testing/"
RUN_SECONDS: Final = 60.0
"""Seconds for a command whose output is sent at its end."""


Usage = Callable[[HttpRequest], Response | None]
"""Answers requests about usage; returns None for an unknown page (kedge.node.server.usage)."""


class ServedPods(Protocol):
    """The pods of this node (kedge.node.pod.workers)."""

    def pods(self) -> list[Pod]: ...

    def find(self, namespace: str, name: str) -> Pod | None: ...

    def observed(self, uid: str) -> PodRuntimeState: ...


class NodeServer:
    """The node's server. It listens early, so that its port is known, and serves once `run` has the
    pods."""

    def __init__(
        self,
        client: Client,
        runtime: Runtime,
        node: str,
        clock: Clock,
        pauses: LoopPauses | None = None,
        exceed_memory: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`exceed_memory` kills a container as if it had used up its memory; None unless the node
        is for tests."""
        self._exceed_memory = exceed_memory
        self._pauses = pauses or LoopPauses()
        self._runtime = runtime
        self._clock = clock
        self._callers = CallerReview(client, node, clock)
        self._inotify = Inotify()
        self._sessions = SessionCounter()
        # No handler reads a body, and the caller is known only after a request to the API server.
        self._server = HttpServer(self.handle, clock, ServerLimits(body_bytes=BODY_BYTES))
        self._pods: ServedPods | None = None
        self._usage: Usage | None = None

    async def listen(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext,
        make: SocketMaker = socket.socket,
    ) -> int:
        """Accept connections; return the port."""
        return await self._server.listen(host, port, tls, make)

    async def run(self, pods: ServedPods) -> None:
        """Serve requests about these pods until cancelled."""
        self._pods = pods
        await self._server.sweep()

    def serve_usage(self, usage: Usage) -> None:
        """Serve requests about usage from now on."""
        self._usage = usage

    async def close(self) -> None:
        await self._server.close(grace=1)
        self._inotify.close()

    def handle(self, request: HttpRequest) -> Coroutine[Any, Any, Response]:
        return self._answer(request)

    async def _answer(self, request: HttpRequest) -> Response:
        try:
            await self._callers.admit(request)
            if self._pods is None:
                raise StatusError(503, "ServiceUnavailable", "the node agent is starting")
            if request.path == "/metrics":
                _only(request, "GET")
                return Response(200, self._metrics(request), CONTENT_TYPE)
            if request.path.startswith(("/stats/", "/metrics/", f"/{WINDOWS_ROOT}")):
                return self._tell(request)
            if request.path.startswith(TESTING_ROOT) and self._exceed_memory is not None:
                return await self._kill(request, self._pods, self._exceed_memory)
            surroundings = (self._pods, self._runtime, self._inotify, self._sessions, self._clock)
            return await NodeResponse(*surroundings).to(request)
        except StatusError as error:
            response = text_response(error.message, error.code)
            if error.retry_after:
                response.headers.append(("Retry-After", str(error.retry_after)))
            return response
        except Unreachable as error:
            return text_response(f"cannot reach the API server: {error}", 500)
        except Exception:
            log.exception("request failed method=%s path=%s", request.method, request.path)
            return text_response("the node agent has a defect; its log has the details", 500)

    async def _kill(
        self,
        request: HttpRequest,
        pods: ServedPods,
        exceed_memory: Callable[[str], Awaitable[None]],
    ) -> Response:
        """Kill a container as if it had used up its memory."""
        _only(request, "POST")
        match [unquote(part) for part in request.path.strip("/").split("/")]:
            case ["testing", "oomKill", uid, name]:
                record = pods.observed(uid).current(name)
            case _:
                return text_response("404 page not found\n", 404)
        if record is None or record.state is not RunState.RUNNING:
            raise StatusError(409, "Conflict", f'container "{name}" is not running')
        try:
            await exceed_memory(record.id)
        except (RuntimeFailure, NotFoundError) as error:
            raise StatusError(500, "InternalError", str(error)) from error
        return json_response({})

    def _metrics(self, request: HttpRequest) -> bytes:
        """Return the metrics of the agent, and of volumes once they are measured."""
        found = self._usage(request) if self._usage is not None else None
        volumes = found.body if found is not None and isinstance(found.body, bytes) else b""
        return self._pauses.text().encode() + volumes

    def _tell(self, request: HttpRequest) -> Response:
        _only(request, "GET", "POST")
        if self._usage is None:
            raise StatusError(503, "ServiceUnavailable", "usage has not been measured yet")
        return self._usage(request) or text_response("404 page not found\n", 404)


class NodeResponse:
    """The response to one request."""

    def __init__(
        self,
        pods: ServedPods,
        runtime: Runtime,
        inotify: Inotify,
        sessions: SessionCounter,
        clock: Clock,
    ) -> None:
        self._pods = pods
        self._runtime = runtime
        self._inotify = inotify
        self._sessions = sessions
        self._clock = clock

    async def to(self, request: HttpRequest) -> Response:
        match [unquote(part) for part in request.path.strip("/").split("/")]:
            case ["healthz"]:
                return text_response("ok")
            case ["pods"]:
                return self._list(request, [RESOURCE.to_document(pod) for pod in self._pods.pods()])
            case ["runningpods"]:
                return self._list(request, self._running())
            case ["containerLogs", namespace, name, container]:
                _only(request, "GET")
                return self._log(request, self._pod(namespace, name), container)
            case ["exec", namespace, name, *uid, container] if len(uid) < 2:
                _only(request, "GET", "POST")
                return self._exec(request, self._pod(namespace, name, uid), container)
            case ["attach", namespace, name, *uid, container] if len(uid) < 2:
                _only(request, "GET", "POST")
                return self._attach(request, self._pod(namespace, name, uid), container)
            case ["run", namespace, name, *uid, container] if len(uid) < 2:
                _only(request, "POST")
                return await self._run(request, self._pod(namespace, name, uid), container)
            case ["portForward", namespace, name, *uid] if len(uid) < 2:
                _only(request, "GET", "POST")
                return self._forward(request, self._pod(namespace, name, uid))
            case _:
                return text_response("404 page not found\n", 404)

    def _list(self, request: HttpRequest, items: list[dict[str, Any]]) -> Response:
        _only(request, "GET")
        head = {"kind": "PodList", "apiVersion": "v1", "metadata": {}}
        return json_response({**head, "items": items})

    def _running(self) -> list[dict[str, Any]]:
        """Return the running containers of each pod, as far as the runtime knows them."""
        found = []
        for pod in self._pods.pods():
            meta = pod.metadata
            containers = [
                {"name": record.name, "image": record.image_name, "resources": {}}
                for record in self._pods.observed(meta.uid).running
            ]
            if containers:
                named = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
                found.append({"metadata": named, "spec": {"containers": containers}, "status": {}})
        return found

    def _pod(self, namespace: str, name: str, uid: list[str] | None = None) -> Pod:
        pod = self._pods.find(namespace, name)
        if pod is None or (uid and pod.metadata.uid != uid[0]):
            raise StatusError(404, "NotFound", f'pod "{name}" does not exist')
        return pod

    def _container(self, pod: Pod, name: str) -> RuntimeContainer:
        """Return a running container. Raises 500, as the kubelet."""
        record = self._pods.observed(pod.metadata.uid).current(name)
        if record is None or record.state is not RunState.RUNNING:
            raise StatusError(500, "InternalError", f'container not found ("{name}")')
        return record

    def _log(self, request: HttpRequest, pod: Pod, container: str) -> Response:
        asked = logs.log_options(request.query, self._clock.now())
        name = pod.metadata.name
        if all(each.name != container for each in _specs(pod)):
            message = f'container "{container}" not found in pod "{name}"'
            raise StatusError(404, "NotFound", message)
        observed = self._pods.observed(pod.metadata.uid)
        record = logs.record_of(pod, observed, container, previous=asked.previous)
        return Response(
            200, logs.LogResponse(record, asked, self._runtime, self._inotify).write_to, TEXT
        )

    def _exec(self, request: HttpRequest, pod: Pod, container: str) -> Response:
        wanted = remote.StreamOptions.read(request.query)
        command = request.query.all("command")
        record = self._container(pod, container)

        async def serve(client: remote.RemoteClient) -> None:
            await commands.execute(self._runtime, record.id, command, wanted, client)

        return self._session(pod, remote.answer(request, wanted, serve))

    def _attach(self, request: HttpRequest, pod: Pod, container: str) -> Response:
        wanted = remote.StreamOptions.read(request.query)
        record = self._container(pod, container)

        async def serve(client: remote.RemoteClient) -> None:
            await commands.attach(self._runtime, record.id, wanted, client)

        return self._session(pod, remote.answer(request, wanted, serve))

    def _session(self, pod: Pod, response: Response) -> Response:
        """Return the response that starts a session, and count the session until it ends. Raises
        429."""
        uid, take_over = pod.metadata.uid, response.take_over
        if take_over is None:
            return response
        self._sessions.check(uid)

        async def counted(duplex: Duplex) -> None:
            with self._sessions.open(uid):
                await take_over(duplex)

        response.take_over = counted
        return response

    async def _run(self, request: HttpRequest, pod: Pod, container: str) -> Response:
        """Run a command to its end, for callers that need neither its streams nor its exit code."""
        record = self._container(pod, container)
        command = request.query.get("cmd").split(" ")
        uid = pod.metadata.uid
        self._sessions.check(uid)
        try:
            with self._sessions.open(uid):
                done = await self._runtime.execute(record.id, command, RUN_SECONDS)
        except (RuntimeFailure, NotFoundError, TimeoutError) as error:
            why = str(error) or f"it took longer than {RUN_SECONDS:g} seconds"
            raise StatusError(500, "InternalError", why) from error
        if done.exit_code:
            said = (done.stdout + done.stderr).decode(errors="replace")
            message = f"command terminated with exit code {done.exit_code}: {said}"
            raise StatusError(500, "InternalError", message)
        return Response(200, done.stdout + done.stderr, TEXT)

    def _forward(self, request: HttpRequest, pod: Pod) -> Response:
        sandbox = self._pods.observed(pod.metadata.uid).ready_sandbox
        if sandbox is None:
            name = f"{pod.metadata.name}_{pod.metadata.namespace}"
            raise StatusError(500, "InternalError", f'sandbox not found for pod "{name}"')

        async def dial(port: int) -> int:
            return await self._runtime.dial(sandbox.id, port)

        target = ports.PortForwardTarget(pod.metadata.name, pod.metadata.uid, dial)
        return self._session(pod, ports.answer(request, target))


def _specs(pod: Pod) -> tuple[ContainerConfig, ...]:
    spec = pod.spec
    return (*spec.containers, *spec.initContainers, *spec.ephemeralContainers)


def _only(request: HttpRequest, *methods: str) -> None:
    if request.method not in methods:
        raise method_not_allowed()
