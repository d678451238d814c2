"""Pages: the paths that name no resource, such as /version, /metrics and /readyz."""

import platform
from collections.abc import Coroutine
from itertools import chain
from typing import Any, Final

from kedge import KUBERNETES, __version__
from kedge.apiserver.api import Api
from kedge.apiserver.authentication.openid import OpenId
from kedge.apiserver.context import Answer
from kedge.apiserver.documents import Documents
from kedge.apiserver.fairness.flow_controller import FlowController
from kedge.apiserver.health import ENDPOINTS, HealthChecks
from kedge.apiserver.metrics import ingest
from kedge.apiserver.telemetry import Telemetry
from kedge.machinery.errors import method_not_allowed, unknown_resource
from kedge.metrics.frame_codec import PREFIX
from kedge.metrics.serve import prometheus
from kedge.web.message import HttpRequest, Response, json_response, text_response

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"

_PATHS: Final = ("/api", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", "/version")


class Pages:
    """Answers requests for paths outside of the API groups."""

    def __init__(
        self,
        api: Api,
        *,
        openid: OpenId,
        documents: Documents,
        telemetry: Telemetry,
        health: HealthChecks,
        flows: FlowController,
    ) -> None:
        self._api = api
        self._openid = openid
        self._documents = documents
        self._telemetry = telemetry
        self._health = health
        self._flows = flows

    def unknown(self, http: HttpRequest, group: str) -> Answer:
        """Return the answer to a path that no resource has: 404, as plain text if the group has no
        built-in kinds."""
        if self._api.catalog.has_built_in(group):
            raise unknown_resource()
        return text_response("404 page not found\n", 404)

    def answer(self, http: HttpRequest) -> Answer:
        """Return the page, or 404 as plain text."""
        if http.path.startswith(PREFIX):
            return ingest.answer(self._api.metrics, http)
        found = self._page(http) or self._openid.answer(http) or self._documents.answer(http)
        if found is None:
            return self.unknown(http, _group(http.path))
        if http.method not in ("GET", "HEAD"):
            if isinstance(found, Coroutine):
                found.close()
            raise method_not_allowed()
        return found

    def _page(self, http: HttpRequest) -> Answer | None:
        match http.path.strip("/").split("/"):
            case ["version"]:
                return json_response(version_info())
            case [name, *below] if name in ENDPOINTS:
                return self._health.answer(name, "/".join(below), http.query)
            case ["metrics"]:
                nodes = prometheus.nodes(self._api.metrics).encode()
                return Response(200, chain(self._telemetry.pages(), (nodes,)), PROMETHEUS)
            case ["metrics", "usage"]:
                return Response(200, prometheus.pages(self._api.metrics), PROMETHEUS)
            case ["debug", "api_priority_and_fairness", name]:
                return self._dump(name, http)
            case [""]:
                return json_response({"paths": self._paths()})
            case _:
                return None

    def _dump(self, name: str, http: HttpRequest) -> Response | None:
        from kedge.apiserver.fairness.flow_dump import dump

        details = bool(http.query.get("includeRequestDetails"))
        text = dump(self._flows, name, self._api.clock, details=details)
        return None if text is None else text_response(text)

    def _paths(self) -> list[str]:
        versions = {resource.api_version for resource in self._api.catalog}
        groups = [f"/apis/{name}" if "/" in name else f"/api/{name}" for name in versions]
        return sorted({*groups, *_PATHS, *(f"/{name}" for name in ENDPOINTS)})


def version_info() -> dict[str, Any]:
    """Return the version of Kubernetes that the server implements."""
    major, minor, _ = KUBERNETES.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{KUBERNETES}+kedge",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"kedge{__version__}",
        "compiler": f"python{platform.python_version()}",
        "platform": f"linux/{_architecture()}",
    }


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _group(path: str) -> str:
    """Return the group of the path of a version; of other paths something that is no group."""
    match path.strip("/").split("/"):
        case ["api", _]:
            return ""
        case ["apis", group, _]:
            return group
        case _:
            return "/"
