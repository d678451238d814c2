"""Serves raw usage samples, and the windows of this node and its pods."""

from collections.abc import Callable
from functools import partial

from kedge.node.server.callers import WINDOWS_ROOT
from kedge.node.stats.exposition import CONTENT_TYPE, cadvisor, resource, volumes
from kedge.node.stats.readings import NodeReadings
from kedge.node.stats.sampler import Sampler
from kedge.node.stats.summary import summary
from kedge.node.stats.window_pages import WindowPages
from kedge.web.message import HttpRequest, Response, json_response


def handler(
    now: NodeReadings, sampler: Sampler, node: str, uid: Callable[[], str]
) -> Callable[[HttpRequest], Response | None]:
    """Return the function that answers requests about this node."""
    return partial(answer, now=now, windows=WindowPages(sampler, node, uid))


def answer(request: HttpRequest, now: NodeReadings, windows: WindowPages) -> Response | None:
    """Return the page for a path; None if there is none."""
    if f"{request.path}/".startswith(f"/{WINDOWS_ROOT}/"):
        return windows.answer(request)
    match request.path.rstrip("/"):
        case "/stats/summary":
            brief = request.query.flag("only_cpu_and_memory")
            return json_response(summary(now, only_cpu_and_memory=brief))
        case "/metrics":
            return Response(200, volumes(now).encode(), CONTENT_TYPE)
        case "/metrics/resource":
            return Response(200, resource(now).encode(), CONTENT_TYPE)
        case "/metrics/cadvisor":
            return Response(200, cadvisor(now).encode(), CONTENT_TYPE)
        case _:
            return None
