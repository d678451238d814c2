"""Which function serves which subresource: the explicit list."""

from collections.abc import Awaitable, Callable

from kedge.apiserver.api import Api
from kedge.apiserver.request import Request
from kedge.apiserver.subresources import (
    approval,
    binding,
    eviction,
    finalize,
    pod_parts,
    proxy,
    running,
    scale,
    status,
)
from kedge.machinery.errors import unknown_resource
from kedge.web.message import Response

Handler = Callable[[Api, Request], Awaitable[Response]]

GENERAL: dict[str, Handler] = {"status": status.serve, "scale": scale.serve}
"""Subresources that any kind may have."""

SPECIAL: dict[tuple[str, str], Handler] = {
    ("pods", "binding"): binding.serve,
    ("pods", "eviction"): eviction.serve,
    ("pods", "ephemeralcontainers"): pod_parts.ephemeral_containers,
    ("pods", "resize"): pod_parts.resize,
    ("pods", "attach"): running.attach,
    ("pods", "exec"): running.execute,
    ("pods", "log"): running.log,
    ("pods", "portforward"): running.forward,
    ("pods", "proxy"): proxy.to_pod,
    ("services", "proxy"): proxy.to_service,
    ("nodes", "proxy"): proxy.to_node,
    ("namespaces", "finalize"): finalize.serve,
    ("certificatesigningrequests", "approval"): approval.serve,
}


async def serve(api: Api, request: Request) -> Response:
    handler = GENERAL.get(request.subresource) or SPECIAL.get(
        (request.resource.plural, request.subresource)
    )
    if handler is None:
        raise unknown_resource()
    return await handler(api, request)
