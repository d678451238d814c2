"""Forwarding of requests to extension servers, in the name of the user."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from kedge.apiserver.aggregation.extension_servers import ExtensionServers
from kedge.apiserver.aggregation.front_proxy import user_headers
from kedge.apiserver.aggregation.remote_version import RemoteVersion
from kedge.apiserver.request import User
from kedge.apiserver.subresources.pod_streams import forwarded_headers
from kedge.machinery.errors import StatusError, bad_request
from kedge.web import relay
from kedge.web.exchange import Exchange, OutgoingRequest
from kedge.web.message import HttpRequest, Response, asks_upgrade, text_response

_REDIRECTED: Final = "the backend attempted to redirect this request, which is not permitted"
_DOTS: Final = (".", "..")


async def forward(
    servers: ExtensionServers, remote: RemoteVersion, http: HttpRequest, user: User
) -> Response:
    """Return the extension server's response; its body is passed on as it arrives."""
    check_path(http.path)
    if not remote.is_available:
        return refusal("service unavailable", 503)
    try:
        address = servers.address(remote)
    except StatusError as error:
        # Upstream hides why a Service has no endpoint; the APIService says it.
        return refusal(error.message if error.code == 500 else "service unavailable", error.code)
    query = f"?{http.query_string}" if http.query_string else ""
    headers = (forwarded_headers(http) | relay.forwarded_for(http)).items()
    asking = OutgoingRequest(
        http.method, http.path + query, [*headers, *user_headers(user)], http.body, remote.host
    )
    if asks_upgrade(http.headers):
        return relay.joined(await relay.reach(address, asking))
    try:
        exchange = await servers.ask(address, asking)
    except (OSError, TimeoutError) as error:
        why = relay.dial_failure(address, error)
        return refusal(f"error trying to reach service: {why}", 503)
    return _response(http, exchange)


def check_path(path: str) -> None:
    """Refuse a path that the extension server could read otherwise than the authorizer did: with
    slashes that are escaped, empty segments or dots."""
    segments: Sequence[str] = [unquote(segment) for segment in path.split("/")]
    inner = segments[1:-1] if not segments[-1] else segments[1:]
    if any(not each or "/" in each or "\0" in each or each in _DOTS for each in inner):
        raise bad_request("the path has an empty segment, dots or an escaped slash")


def refusal(message: str, status: int) -> Response:
    """Return an error of the proxy itself: plain text, as upstream."""
    return text_response(f"{message}\n", status)


def _response(http: HttpRequest, exchange: Exchange) -> Response:
    if 300 <= exchange.status < 400 and exchange.header("location"):
        # The client would send its credentials for this server to the other address.
        exchange.close()
        return refusal(_REDIRECTED, 502)
    response = relay.streamed_response(exchange, is_head=http.method == "HEAD")
    response.headers = [
        (name, value)
        for name, value in response.headers
        if not name.startswith("Access-Control-Allow-")
    ]
    return response
