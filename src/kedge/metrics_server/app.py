"""MetricsApp: the request handler of a server that serves only metrics."""

import logging
from collections.abc import Callable, Coroutine

from kedge.api.catalog import BUILT_IN, Catalog
from kedge.api.resource import ObjectSource
from kedge.apiserver import route
from kedge.apiserver.api import Api
from kedge.apiserver.app import failure
from kedge.apiserver.authorization.attributes import Attributes, of_path, of_resource
from kedge.apiserver.documents import Documents
from kedge.apiserver.metrics import serve
from kedge.apiserver.pages import PROMETHEUS, version_info
from kedge.apiserver.request import Request, User
from kedge.apiserver.steps import indented, is_read_by_people
from kedge.apiserver.telemetry import Telemetry
from kedge.machinery.errors import (
    StatusError,
    internal,
    method_not_allowed,
    unknown_resource,
)
from kedge.metrics.serve import prometheus
from kedge.metrics_server.delegated_auth import DelegatedAuth
from kedge.web.message import HttpRequest, Response, json_response, text_response

log = logging.getLogger(__name__)


class MetricsApp:
    """Handles all requests."""

    def __init__(
        self, api: Api, auth: DelegatedAuth, telemetry: Telemetry, address: str = ""
    ) -> None:
        self._api = api
        self._auth = auth
        self._telemetry = telemetry
        self.catalog = Catalog(
            [each for each in BUILT_IN if each.source is ObjectSource.NODE_REPORTS]
        )
        self._documents = Documents(self.catalog, lambda: address, api.clock, api.long_work)
        self.ready = False

    async def handle(self, http: HttpRequest) -> Response:
        """Answer a request."""
        begun = self._api.clock.monotonic()
        labels = (http.method, "", "", "")
        try:
            target = route.parse(http.path)
            if target is None:
                response = await self._page(http)
            else:
                verb = route.verb(http.method, target, http.query)
                if self.catalog.find(target.group, target.version, target.plural) is not None:
                    labels = (verb.upper(), target.group, target.plural, "")
                response = await self._resource(http, target, verb)
        except StatusError as error:
            response = failure(error, http)
        except Exception:
            log.exception("request failed method=%s path=%s", http.method, http.path)
            response = failure(internal("the server has a defect; its log has the details"), http)
        seconds = self._api.clock.monotonic() - begun
        self._telemetry.count(labels, response.status, seconds)
        return indented(response) if is_read_by_people(http) else response

    async def _resource(self, http: HttpRequest, target: route.ResourcePath, verb: str) -> Response:
        user = await self._allowed(http, lambda user: of_resource(user, verb, target, http))
        if not self.catalog.has_version(target.group, target.version):
            return text_response("404 page not found\n", 404)
        resource = self.catalog.find(target.group, target.version, target.plural)
        if resource is None:
            raise unknown_resource()
        request = Request(
            http, user, resource, verb, target.namespace, target.name, target.subresource
        )
        route.check(resource, target, verb)
        answer = serve.answer(self._api, request)
        return answer if isinstance(answer, Response) else await answer

    async def _page(self, http: HttpRequest) -> Response:
        segments = http.path.strip("/").split("/")
        if segments[0] in ("healthz", "livez", "readyz"):
            return self._health(segments)
        await self._allowed(http, lambda user: of_path(user, http.method, http.path))
        # A request for an older state must not be redirected: behind a proxy the address is wrong.
        found = self._own_page(segments) or self._documents.answer(_unversioned(http))
        if found is None:
            return text_response("404 page not found\n", 404)
        if http.method not in ("GET", "HEAD"):
            if isinstance(found, Coroutine):
                found.close()
            raise method_not_allowed()
        return found if isinstance(found, Response) else await found

    async def _allowed(self, http: HttpRequest, asks: Callable[[User], Attributes]) -> User:
        user = await self._auth.user(http)
        await self._auth.check(asks(user))
        return user

    def _own_page(self, segments: list[str]) -> Response | None:
        match segments:
            case ["version"]:
                return json_response(version_info())
            case ["metrics"]:
                text = self._telemetry.text() + prometheus.nodes(self._api.metrics)
                return Response(200, text.encode(), PROMETHEUS)
            case ["metrics", "usage"]:
                return Response(200, prometheus.pages(self._api.metrics), PROMETHEUS)
            case _:
                return None

    def _health(self, segments: list[str]) -> Response:
        if len(segments) > 1:
            return text_response("404 page not found\n", 404)
        if segments[0] == "readyz" and not self.ready:
            return text_response("the nodes and pods of the cluster are not known yet\n", 500)
        return text_response("ok")


def _unversioned(http: HttpRequest) -> HttpRequest:
    """The same request for a document as it is now, whichever state of it is asked for."""
    return HttpRequest(http.method, http.path, "", http.headers)
