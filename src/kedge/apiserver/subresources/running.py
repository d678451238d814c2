"""What needs a running pod or node: refused with the reason as long as nothing runs them."""

from kedge.apiserver.api import Api, gone
from kedge.apiserver.request import Request
from kedge.machinery.errors import StatusError, bad_request, internal
from kedge.web.message import TEXT, Response

_NO_NODES = "this server has no nodes that run pods"


async def refuse(api: Api, request: Request) -> Response:
    """exec, attach, port-forward and proxy of a pod."""
    raise _unreachable(request, _node_of(api, request))


async def log(api: Api, request: Request) -> Response:
    """A pod that has not been scheduled has said nothing yet."""
    node = _node_of(api, request)
    if not node:
        return Response(204, b"", TEXT)
    raise _unreachable(request, node)


async def refuse_service(api: Api, request: Request) -> Response:
    raise StatusError(
        503, "ServiceUnavailable", f'no endpoints available for service "{request.name}"'
    )


async def refuse_node(api: Api, request: Request) -> Response:
    raise internal(f"node {request.name} cannot be reached: {_NO_NODES}")


def _node_of(api: Api, request: Request) -> str:
    item = api.find(request)
    if item is None:
        raise gone(request)
    node: str = item.document().get("spec", {}).get("nodeName", "")
    return node


def _unreachable(request: Request, node: str) -> StatusError:
    if not node:
        return bad_request(f"pod {request.name} does not have a host assigned")
    return internal(f"node {node} cannot be reached: {_NO_NODES}")
