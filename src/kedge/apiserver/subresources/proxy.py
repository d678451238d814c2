"""Proxies: HTTP to a node's agent, a port of a pod or an endpoint of a Service."""

import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kedge.api.core_v1 import endpoints, service
from kedge.api.core_v1.endpoints import EndpointAddress
from kedge.api.core_v1.pod import pod as pods
from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.subresources import proxy_body, proxy_target
from kedge.apiserver.subresources.pod_streams import admit, agent, entering, forwarded_headers
from kedge.apiserver.subresources.proxy_links import LinkBase, LinkRewriter
from kedge.apiserver.subresources.proxy_target import ProxyName
from kedge.machinery.errors import StatusError, not_found
from kedge.web import relay
from kedge.web.exchange import Exchange, OutgoingRequest, ServerAddress, ask
from kedge.web.message import HttpRequest, Response, Sink, Stream, asks_upgrade

_BEFORE_REST: Final = {"nodes": 5, "pods": 7, "services": 7}
"""Number of segments before the path that the other server sees."""
_CORS: Final = frozenset(
    f"Access-Control-Allow-{what}" for what in ("Credentials", "Headers", "Methods", "Origin")
)
"""Headers that would let pages of other origins read the API server."""
_HTTP_PORTS: Final = {"": 80, "http": 80, "https": 443}


async def to_node(api: Api, request: Request) -> Response:
    """Forward a request to the agent of a node, or to another port of the node."""
    if asks_upgrade(request.http.headers) and request.verb != "create":
        # Agents offer exec and attach over other protocols.
        api.authorizer.require(entering(request))
    await admit(api, request, "NodeProxyOptions", {"path": _rest(request)})
    asked = proxy_target.split_numeric(request.name, "node")
    address = agent(api, asked.name)
    if asked.port not in ("", str(address.port)):
        host = proxy_target.check_address(address.host)
        address = _server(api, asked.scheme, host, int(asked.port))
    return await _pass_on(request, address)


async def to_pod(api: Api, request: Request) -> Response:
    """Forward a request to a port of a pod: the named one, else the first that it declares."""
    asked = proxy_target.split_numeric(request.name, "pod")
    await admit(api, request, "PodProxyOptions", {"path": _rest(request)})
    found = _pod(api, request.namespace, asked.name)
    if found is None:
        raise not_found("", "pods", asked.name)
    host = proxy_target.check_address(str((found.get("status") or {}).get("podIP", "")))
    port = asked.number or proxy_target.first_port(found) or _HTTP_PORTS[asked.scheme]
    return await _pass_on(request, _server(api, asked.scheme, host, port))


async def to_service(api: Api, request: Request) -> Response:
    """Forward a request to a ready endpoint of a Service."""
    asked = proxy_target.split(request.name, "service")
    await admit(api, request, "ServiceProxyOptions", {"path": _rest(request)})
    host, port = _endpoint(api, request.namespace, asked)
    return await _pass_on(request, _server(api, asked.scheme, host, port))


def _endpoint(api: Api, namespace: str, asked: ProxyName) -> tuple[str, int]:
    name = asked.port
    if asked.number is not None:
        item = api.cache.of(service.RESOURCE).get(service.RESOURCE.key(namespace, asked.name))
        if item is None:
            raise not_found("", "services", asked.name)
        name = proxy_target.port_name(asked, service.RESOURCE.decode(item.body).spec.ports)
    item = api.cache.of(endpoints.RESOURCE).get(endpoints.RESOURCE.key(namespace, asked.name))
    if item is None:
        raise not_found("", "endpoints", asked.name)

    def is_pod(address: EndpointAddress) -> bool:
        reference = address.targetRef
        if reference is None or reference.namespace != namespace:
            return False
        pod = _pod(api, namespace, reference.name)
        ips = ((pod or {}).get("status") or {}).get("podIPs") or ()
        return any(each.get("ip") == address.ip for each in ips)

    subsets = endpoints.RESOURCE.decode(item.body).subsets
    host, port = proxy_target.endpoint(asked, subsets, name, is_pod, api.random)
    return proxy_target.check_address(host), port


def _pod(api: Api, namespace: str, name: str) -> Mapping[str, Any] | None:
    item = api.cache.of(pods.RESOURCE).get(pods.RESOURCE.key(namespace, name))
    return None if item is None else item.document()


def _server(api: Api, scheme: str, host: str, port: int) -> ServerAddress:
    tls = _unverified() if scheme == "https" else None
    return ServerAddress(host, port, tls, make=api.network.maker(host))


@cache
def _unverified() -> ssl.SSLContext:
    """Return a TLS context that accepts any certificate, as upstream does: certificates of pods
    name neither their addresses nor an authority that the server knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _rest(request: Request) -> str:
    """Return the path that the other server sees, as the client spelled it; empty if the path
    ends with the subresource."""
    path = request.http.path
    segments = path.lstrip("/").split("/", _BEFORE_REST[request.resource.plural])
    return f"/{segments[-1]}" if len(segments) > _BEFORE_REST[request.resource.plural] else ""


async def _pass_on(request: Request, address: ServerAddress) -> Response:
    http, rest = request.http, _rest(request)
    query = f"?{http.query_string}" if http.query_string else ""
    headers = forwarded_headers(http) | relay.forwarded_for(http)
    asked = http.headers.get("host", "")
    if asks_upgrade(http.headers):
        asking = OutgoingRequest(http.method, (rest or "/") + query, headers.items(), host=asked)
        return relay.joined(await relay.reach(address, asking))
    if not rest and http.method in ("GET", "HEAD"):
        # Relative links of a page need the slash.
        return Response(301, b"", "", [("Location", f"{http.path}/{query}")])
    headers |= {
        "x-forwarded-host": asked,
        "x-forwarded-proto": "https",
        "x-forwarded-uri": http.path,
    }
    target = (rest or "/") + query
    asking = OutgoingRequest(http.method, target, headers.items(), http.body, asked)
    exchange = await _reach(address, asking)
    return _response(http, exchange, LinkBase(_prefix(http.path, rest), address.authority, asked))


def _prefix(path: str, rest: str) -> str:
    return path[: len(path) - len(rest)]


async def _reach(address: ServerAddress, asking: OutgoingRequest) -> Exchange:
    """Return the other server's response; 503 if there is none."""
    try:
        return await ask(address, asking)
    except (OSError, TimeoutError) as error:
        why = relay.dial_failure(address, error)
        message = f"error trying to reach service: {why}"
        raise StatusError(503, "ServiceUnavailable", message) from error


def _response(http: HttpRequest, exchange: Exchange, base: LinkBase) -> Response:
    """Return the other server's response, with its links moved below the path of the proxy."""
    response = relay.streamed_response(exchange, is_head=http.method == "HEAD")
    response.headers = [
        (name, base.moved(value) if name == "Location" else value)
        for name, value in response.headers
        if name not in _CORS
    ]
    if _has_links(exchange):
        response.length = None
        if callable(response.body):
            response.body = _rewritten(exchange, base)
    return response


def _has_links(exchange: Exchange) -> bool:
    content_type, _, _ = exchange.header("content-type").partition(";")
    if exchange.header("location") or content_type.strip() != "text/html":
        return False
    return exchange.header("content-encoding") in proxy_body.CODINGS


def _rewritten(exchange: Exchange, base: LinkBase) -> Stream:
    async def pour(sink: Sink) -> None:
        coding = exchange.header("content-encoding")
        try:
            async for piece in proxy_body.rewritten(exchange.pieces(), coding, LinkRewriter(base)):
                sink.write(piece)
                await sink.drain()
        finally:
            exchange.close()

    return pour
