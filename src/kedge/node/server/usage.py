"""Serves raw usage samples; the API server computes statistics."""

from kedge.node.stats.exposition import CONTENT_TYPE, cadvisor, resource
from kedge.node.stats.readings import NodeReadings
from kedge.node.stats.summary import summary
from kedge.web.message import HttpRequest, Response, json_response


def answer(request: HttpRequest, now: NodeReadings) -> Response | None:
    """Return the page for a path; None if there is none."""
    match request.path.rstrip("/"):
        case "/stats/summary":
            brief = request.query.flag("only_cpu_and_memory")
            return json_response(summary(now, only_cpu_and_memory=brief))
        case "/metrics/resource":
            return Response(200, resource(now).encode(), CONTENT_TYPE)
        case "/metrics/cadvisor":
            return Response(200, cadvisor(now).encode(), CONTENT_TYPE)
        case _:
            return None
