"""Proxies: HTTP to a node's agent, or to a port of a pod, through the API server."""

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from kedge.api.core_v1.pod import pod as pods
from kedge.apiserver import relay
from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.subresources.pod_streams import admit, agent, entering
from kedge.machinery.errors import StatusError, bad_request, not_found
from kedge.web.exchange import OutgoingRequest, ServerAddress
from kedge.web.message import Response, asks_upgrade

_BEFORE_REST: Final = {"nodes": 6, "pods": 8}
"""Number of segments, with the empty one in front, before the path that the other server sees."""


async def to_node(api: Api, request: Request) -> Response:
    """Forward a request to the agent of a node."""
    if asks_upgrade(request.http.headers) and request.verb != "create":
        # Agents offer exec and attach over other protocols.
        api.authorizer.require(entering(request))
    await admit(api, request, "NodeProxyOptions", {"path": _rest(request)})
    _, name, port = split(request.name, "node")
    address = agent(api, name)
    if port not in ("", str(address.port)):
        raise bad_request("address not allowed")
    return await _pass_on(request, address)


async def to_pod(api: Api, request: Request) -> Response:
    """Forward a request to a port of a pod: the named one, else the first that it declares."""
    scheme, name, port = split(request.name, "pod")
    await admit(api, request, "PodProxyOptions", {"path": _rest(request)})
    item = api.cache_of(request.resource).get(pods.RESOURCE.key(request.namespace, name))
    if item is None:
        raise not_found("", "pods", name)
    if scheme == "https":
        raise bad_request("pods can be reached by HTTP only, not by HTTPS")
    found = item.document()
    address = ServerAddress(_address(found), int(port) if port else _first_port(found))
    return await _pass_on(request, address)


async def to_service(api: Api, request: Request) -> Response:
    """Refuse: services have no endpoints that the server can reach."""
    raise StatusError(
        503, "ServiceUnavailable", f'no endpoints available for service "{request.name}"'
    )


def split(text: str, what: str) -> tuple[str, str, str]:
    """Scheme, name and port of `name`, `name:port` or `scheme:name:port`; raises 400."""
    match text.split(":"):
        case [name]:
            scheme, port = "", ""
        case [name, port]:
            scheme = ""
        case [scheme, name, port] if scheme in ("", "http", "https"):
            pass
        case _:
            raise bad_request(f'invalid {what} request "{text}"')
    numeric = port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 1 << 16
    if not name or (port and not numeric):
        raise bad_request(f'invalid {what} request "{text}"')
    return scheme, name, port


def _address(pod: Mapping[str, Any]) -> str:
    """Return the address of a pod; 400 for addresses of the server's own machine."""
    text = str((pod.get("status") or {}).get("podIP", ""))
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise bad_request("address not allowed") from None
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        raise bad_request("address not allowed")
    if address.is_link_local:
        raise bad_request("address not allowed")
    return text


def _first_port(pod: Mapping[str, Any]) -> int:
    for container in pod.get("spec", {}).get("containers") or ():
        for port in container.get("ports") or ():
            return int(port["containerPort"])
    return 80


def _rest(request: Request) -> str:
    """Return the path that the other server sees, as the client spelled it."""
    segments = request.http.path.split("/")[_BEFORE_REST[request.resource.plural] :]
    return "/" + "/".join(segments)


async def _pass_on(request: Request, address: ServerAddress) -> Response:
    http = request.http
    target = _rest(request) + (f"?{http.query_string}" if http.query_string else "")
    if asks_upgrade(http.headers):
        return await relay.upgrade(http, address, target)
    headers = [
        *relay.passed_headers(http.headers, upgrading=False),
        ("x-forwarded-for", http.peer),
        ("x-forwarded-host", http.headers.get("host", "")),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-uri", http.path),
    ]
    exchange = await relay.reach(address, OutgoingRequest(http.method, target, headers, http.body))
    base = http.path.removesuffix(_rest(request))
    answered = [(name, _moved(name, value, base)) for name, value in relay.answered(exchange)]
    return relay.poured(exchange, exchange.header("content-type") or "text/plain", answered)


def _moved(name: str, value: str, base: str) -> str:
    """Return a header, with a redirect within the other server moved below our own path."""
    local = name == "Location" and value.startswith("/") and not value.startswith("//")
    return base + value if local else value
