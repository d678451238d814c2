"""The gateway: forwards HTTP requests to the endpoints of Services."""

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from random import Random
from typing import Final, NamedTuple

from kedge.client.transport import Unreachable
from kedge.gateway.routing import RouteTarget, Routing, routed_path
from kedge.gateway.service_hosts import host_name
from kedge.machinery.errors import StatusError, bad_request
from kedge.web import relay
from kedge.web.cluster_network import MACHINE, ClusterNetwork
from kedge.web.duplex import Duplex
from kedge.web.exchange import Exchange, OutgoingRequest, ServerAddress, ask
from kedge.web.limits import ServerLimits
from kedge.web.message import HttpRequest, Response, Sink, asks_upgrade, text_response

REFUSAL: Final = "X-Kedge-Gateway"
"""The header of the gateway's own errors, which holds their message."""
LIMITS: Final = ServerLimits(body_bytes=32 << 20, bodies_bytes=128 << 20)
_ATTEMPTS: Final = 3
"""Endpoints that are asked for one response."""
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods of requests that may be sent twice."""
ANSWER_SECONDS: Final = 60.0
"""Seconds in which a response must begin, as in other gateways."""
PER_NAMESPACE: Final = 512
"""Requests and streams under way to the Services of one namespace: endpoints that never answer do
not use up the connections of others."""
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


class Peer(NamedTuple):
    """The caller of a request, for which connections are counted."""

    tenant: str
    is_privileged: bool = False


class Gateway:
    """Answers the requests of one listener."""

    def __init__(
        self, routing: Routing, scheme: str, random: Random, network: ClusterNetwork = MACHINE
    ) -> None:
        self._network = network
        self._routing = routing
        self._scheme = scheme
        self._random = random
        self._under_way: Counter[str] = Counter()
        """Requests by namespace."""
        self._via = f"1.1 kedge-{random.getrandbits(64):016x}"

    def handle(self, http: HttpRequest) -> Response | Awaitable[Response]:
        try:
            http.identified(Peer(http.peer or "local"))
            target = self._target(http)
        except StatusError as error:
            return _refusal(error.code, error.message)
        return self._forward(http, target)

    def screen(self, http: HttpRequest) -> Response | None:
        """Return the refusal of a request whose body need not be read."""
        try:
            self._target(http)
        except StatusError as error:
            return _refusal(error.code, error.message)
        return None

    def _target(self, http: HttpRequest) -> RouteTarget:
        if self._via in http.headers.get("via", ""):
            raise StatusError(508, "LoopDetected", "an endpoint is this gateway itself")
        host = http.headers.get("host", "")
        if not _HOST.fullmatch(host):
            # A list of hosts, for instance: servers behind the gateway might choose another one.
            raise bad_request("the request must have one Host header with one host")
        return self._routing.target(host_name(host), routed_path(http.path))

    async def _forward(self, http: HttpRequest, target: RouteTarget) -> Response:
        if self._under_way[target.namespace] >= PER_NAMESPACE:
            message = f'too many requests to services of namespace "{target.namespace}" at a time'
            return _refusal(503, message)
        self._under_way[target.namespace] += 1
        try:
            response = await self._answered(http, target)
        except BaseException:
            self._finished(target)
            raise
        return _followed(response, lambda: self._finished(target))

    def _finished(self, target: RouteTarget) -> None:
        self._under_way[target.namespace] -= 1
        if not self._under_way[target.namespace]:
            del self._under_way[target.namespace]

    async def _answered(self, http: HttpRequest, target: RouteTarget) -> Response:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                exchange = await self._reach(http, target)
        except TimeoutError:
            return _refusal(504, f"the service did not answer within {ANSWER_SECONDS:g} s")
        except OSError as error:
            return _refusal(502, f"no endpoint of the service answers: {error}")
        if exchange.status == 101 and asks_upgrade(http.headers):
            return relay.joined(exchange)
        return relay.streamed_response(exchange, is_head=http.method == "HEAD")

    async def _reach(self, http: HttpRequest, target: RouteTarget) -> Exchange:
        """Return the response of an endpoint. Another one is asked if there is no connection, or
        if a pod that ends drops a request that only reads."""
        endpoints = self._random.sample(target.endpoints, min(_ATTEMPTS, len(target.endpoints)))
        asking = OutgoingRequest(
            http.method,
            f"{http.path}?{http.query_string}" if http.query_string else http.path,
            forwarded_headers(http, self._scheme, self._via).items(),
            http.body,
            http.headers.get("host", ""),
        )
        failure: Exception | None = None
        for host, port in endpoints:
            tls = _unverified() if target.tls else None
            address = ServerAddress(host, port, tls, make=self._network.maker(host))
            try:
                return await ask(address, asking)
            except Unreachable as error:
                if http.method not in _READING or asks_upgrade(http.headers):
                    raise  # the endpoint has the request: another one might do it twice
                failure = error
            except (OSError, TimeoutError) as error:
                failure = OSError(relay.dial_failure(address, error))
        raise failure or OSError("there is none")


def _followed(response: Response, finished: Callable[[], None]) -> Response:
    """Call `finished` when the response has been sent."""
    body, take_over = response.body, response.take_over
    if take_over is not None:

        async def speak(duplex: Duplex) -> None:
            try:
                await take_over(duplex)
            finally:
                finished()

        response.take_over = speak
    elif callable(body):

        async def pour(sink: Sink) -> None:
            try:
                await body(sink)
            finally:
                finished()

        response.body = pour
    else:
        finished()
    return response


def forwarded_headers(http: HttpRequest, scheme: str, via: str) -> Mapping[str, str]:
    """Return the headers for the endpoint. X-Forwarded-Proto and -Host of the client are replaced:
    servers believe them."""
    before = http.headers.get("via", "")
    return {
        **relay.passed_headers(http.headers, upgrading=asks_upgrade(http.headers)),
        **relay.forwarded_for(http),
        "x-forwarded-proto": scheme,
        "x-forwarded-host": http.headers.get("host", ""),
        "via": f"{before}, {via}" if before else via,
    }


def _refusal(code: int, message: str) -> Response:
    response = text_response(f"{message}\n", code)
    response.headers = [(REFUSAL, message)]
    return response


@cache
def _unverified() -> ssl.SSLContext:
    """Return a TLS context for endpoints; their certificates do not name their addresses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
