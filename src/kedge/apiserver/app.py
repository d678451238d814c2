"""Request in, response out: the steps every request passes, in order."""

import logging
import platform
from collections.abc import Awaitable, Coroutine
from typing import Any, Final

import msgspec

from kedge import KUBERNETES, __version__
from kedge.api import decision
from kedge.api.metrics_v1alpha1 import frame
from kedge.apiserver import audit, render, route
from kedge.apiserver.api import Api
from kedge.apiserver.audit import AuditLog
from kedge.apiserver.authentication import impersonation, token_review
from kedge.apiserver.authentication.authenticator import Authenticator
from kedge.apiserver.authentication.openid import OpenId
from kedge.apiserver.authentication.token_requests import TokenRequests
from kedge.apiserver.authorization import access_review
from kedge.apiserver.authorization.attributes import denied, of_path, of_resource
from kedge.apiserver.documents import Documents
from kedge.apiserver.inflight import STREAMED, InFlight, counted
from kedge.apiserver.metrics import ingest, prometheus
from kedge.apiserver.metrics import serve as metrics
from kedge.apiserver.request import Request, User
from kedge.apiserver.subresources import binding
from kedge.apiserver.subresources import table as subresources
from kedge.apiserver.telemetry import Telemetry
from kedge.apiserver.verbs import delete, read, watch, write
from kedge.machinery import reserve_files
from kedge.machinery.errors import (
    StatusError,
    insufficient_storage,
    internal,
    method_not_allowed,
    not_found,
    unknown_resource,
)
from kedge.storage.store import DISK_FULL, DiskFull, StoreError
from kedge.web.message import (
    JSON,
    HttpRequest,
    Response,
    json_response,
    text_response,
    warning_headers,
)

log = logging.getLogger(__name__)

Answer = Response | Awaitable[Response]
_ON_MANY = ("deletecollection",)
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
READERS = ("curl/", "Wget/", "Mozilla/5.0")
"""How programs begin to present themselves whose users read what they get."""


class App:
    """The whole server, seen from its front door."""

    def __init__(
        self,
        api: Api,
        *,
        authenticator: Authenticator,
        token_requests: TokenRequests,
        openid: OpenId,
        documents: Documents,
        telemetry: Telemetry,
        audit_log: AuditLog | None = None,
    ) -> None:
        self.api = api
        self.authenticator = authenticator
        self.token_requests = token_requests
        self.openid = openid
        self.documents = documents
        self.telemetry = telemetry
        self.audit_log = audit_log
        self.in_flight = InFlight()
        self.ready = False
        self.decisions: decision.DecisionSource | None = None
        """Who knows why pods are where they are; None unless a scheduler is at work here."""

    def handle(self, http: HttpRequest) -> Answer:
        """Answer a request: at once if that needs no waiting."""
        start = self.api.clock.monotonic()
        labels = ("", "", "", "")
        request: Request | None = None
        entry: audit.Entry | None = None
        if self.audit_log is not None:
            entry = audit.begun(http, http.peer, self.api.clock.now())
        try:
            target = route.parse(http.path)
            verb = "" if target is None else route.verb(http.method, target, http.query)
            user = self._user(http, target, verb, entry)
            if target is not None:
                self._authorize(user, verb, target, http, entry)
            if target is None or not self._serves(target):
                answer: Answer = self._other(http, user)
                labels = (http.method, "", "", "")
            else:
                request = self._request(http, user, target, verb)
                plural = request.resource.plural
                labels = (verb.upper(), request.resource.group, plural, request.subresource)
                if entry is not None:
                    audit.about(entry, request)
                    request.annotations = entry.annotations
                route.check(request.resource, target, verb)
                answer = self._counted(request)
                if request.resource.presentation.deprecation:
                    answer = _with_notice(request.resource.presentation.deprecation, answer)
        except StatusError as error:
            answer = _failed(error, entry, request)
        except (StoreError, OSError) as error:
            answer = _failed(_refused_by_disk(http, error), entry, request)
        except Exception:
            answer = _bug(http)
        if isinstance(answer, Response):
            self.telemetry.count(*labels, answer.status, self.api.clock.monotonic() - start)
            self._write_down(entry, answer, request)
            return prettified(http, answer)
        return self._finish(http, answer, labels, start, entry, request)

    def screen(self, http: HttpRequest) -> Response | None:
        """Return the refusal of a request before its body is read; None if the body may be read.

        Requests without credentials therefore take no memory for bodies. kube-apiserver reads
        bodies in its handlers, after authentication and authorization, to the same effect.
        """
        entry: audit.Entry | None = None
        if self.audit_log is not None:
            entry = audit.begun(http, http.peer, self.api.clock.now())
        try:
            target = route.parse(http.path)
            verb = "" if target is None else route.verb(http.method, target, http.query)
            user = self._user(http, target, verb, entry)
            if target is not None:
                self._authorize(user, verb, target, http, entry)
            elif http.path.startswith(frame.PREFIX):
                ingest.check_sender(self.api.metrics, user, http)
            else:
                self.api.authorizer.check_path(user, http)
        except StatusError as error:
            answer = _failed(error, entry, None)
            self.telemetry.count(http.method, "", "", "", answer.status, 0.0)
            self._write_down(entry, answer, None)
            return prettified(http, answer)
        return None

    def _counted(self, request: Request) -> Answer:
        """The answer; one that takes time takes one of the places there are."""
        answer = self._dispatch(request)
        if isinstance(answer, Response) or not counted(request.verb, request.subresource):
            return answer
        return self._in_place(request, answer)

    async def _in_place(self, request: Request, pending: Awaitable[Response]) -> Response:
        # Not taken before the work begins: a task that is cancelled before would keep it for ever.
        try:
            place = self.in_flight.enter(request.verb, request.user)
        except StatusError:
            if isinstance(pending, Coroutine):
                pending.close()
            raise
        try:
            return await pending
        finally:
            self.in_flight.leave(place)

    def _write_down(
        self, entry: audit.Entry | None, response: Response, request: Request | None
    ) -> None:
        if self.audit_log is None or entry is None:
            return
        if request is not None:
            audit.about(entry, request)  # once more: by now a new object has its name
        streaming = callable(response.body) or response.take_over is not None
        entry.ended(response.status, self.api.clock.now(), streaming=streaming)
        self.audit_log.add(entry)

    async def _finish(
        self,
        http: HttpRequest,
        pending: Awaitable[Response],
        labels: tuple[str, str, str, str],
        start: float,
        entry: audit.Entry | None,
        request: Request | None,
    ) -> Response:
        try:
            response = await pending
        except StatusError as error:
            response = _failed(error, entry, request)
        except (StoreError, OSError) as error:
            response = _failed(_refused_by_disk(http, error), entry, request)
        except Exception:
            response = _bug(http)
        self.telemetry.count(*labels, response.status, self.api.clock.monotonic() - start)
        self._write_down(entry, response, request)
        return prettified(http, response)

    def _serves(self, target: route.Target) -> bool:
        return self.api.catalog.has_version(target.group, target.version)

    def _user(
        self,
        http: HttpRequest,
        target: route.Target | None,
        verb: str,
        entry: audit.Entry | None,
    ) -> User:
        """Who asks, or whom they may ask as."""
        user = self.authenticator.user(http)
        http.identified(user)
        if entry is not None:
            entry.user = user
        wanted = impersonation.wanted(http.headers)
        if wanted is None:
            return user
        if target is None:
            asked = of_path(user, http.method, http.path)
        else:
            asked = of_resource(user, verb, target, http)
        other = impersonation.become(wanted, asked, self.api.authorizer.decide)
        if entry is not None:
            entry.impersonated = other
        return other

    def _authorize(
        self,
        user: User,
        verb: str,
        target: route.Target,
        http: HttpRequest,
        entry: audit.Entry | None,
    ) -> None:
        """403 unless the user may; what was decided goes on record, if there is one."""
        if entry is None:
            self.api.authorizer.check(user, verb, target, http)
            return
        asked = of_resource(user, verb, target, http)
        decision = self.api.authorizer.decide(asked)
        entry.decided(decision.allowed, decision.reason)
        if not decision.allowed:
            raise denied(asked, decision.reason)

    def _request(self, http: HttpRequest, user: User, target: route.Target, verb: str) -> Request:
        resource = self.api.catalog.find(target.group, target.version, target.plural)
        if resource is None:
            raise unknown_resource()
        name, namespace = target.name, target.namespace
        return Request(http, user, resource, verb, namespace, name, target.subresource)

    def _dispatch(self, request: Request) -> Answer:
        api = self.api
        if request.http.method != "GET" and request.subresource not in STREAMED:
            # Before anything is written: a client that gets an error must find nothing changed.
            render.check(request, render.MANY if request.verb in _ON_MANY else render.ONE)
        if request.resource.measured:
            return metrics.answer(api, request)
        if request.subresource == "token":
            return self.token_requests.serve(api, request)
        if request.subresource:
            return subresources.serve(api, request)
        match request.verb:
            case "get":
                if request.http.query_string and request.query.get("resourceVersion"):
                    return read.get_not_older(api, request)
                return read.get(api, request)
            case "list":
                return self._list(request)
            case "watch":
                return watch.watch(api, request)
            case "create":
                return self._create(request)
            case "update":
                return write.update(api, request)
            case "patch":
                return write.patch(api, request)
            case "delete":
                return delete.delete(api, request)
            case _:
                return delete.delete_collection(api, request)

    def _list(self, request: Request) -> Answer:
        query = request.query
        if "sendInitialEvents" in query:
            raise watch.initial_events_on_list()
        plain = query.get("resourceVersion") in ("", "0") and not query.get("limit")
        if plain and not query.get("continue") and not query.get("resourceVersionMatch"):
            return read.list_latest(self.api, request)
        return read.list_(self.api, request)

    def _create(self, request: Request) -> Answer:
        match request.resource.kind:
            case kind if kind in access_review.KINDS:
                return access_review.serve(self.api, request, self.api.authorizer)
            case "TokenReview":
                return token_review.serve_token_review(self.api, request, self.authenticator)
            case "SelfSubjectReview":
                return token_review.serve_self_review(self.api, request)
            case "Binding":
                return binding.serve_collection(self.api, request)
            case _:
                return write.create(self.api, request)

    # Paths that name no resource.

    def _other(self, http: HttpRequest, user: User) -> Answer:
        if http.path.startswith(frame.PREFIX):
            return ingest.answer(self.api.metrics, http, user)
        if route.parse(http.path) is None:
            self.api.authorizer.check_path(user, http)
        found = self._own_page(http) or self.openid.answer(http) or self.documents.answer(http)
        if found is None:
            return text_response("404 page not found\n", 404)
        if http.method not in ("GET", "HEAD"):
            if isinstance(found, Coroutine):
                found.close()
            raise method_not_allowed()
        return found

    def _own_page(self, http: HttpRequest) -> Response | None:
        match http.path.strip("/").split("/"):
            case ["version"]:
                return json_response(version_info())
            case ["healthz" | "livez" | "readyz" as name, *below]:
                return self._health(http, name, below)
            case ["metrics"]:
                text = self.telemetry.text() + prometheus.nodes(self.api.metrics)
                return Response(200, text.encode(), PROMETHEUS)
            case ["metrics", "usage"]:
                return Response(200, prometheus.pages(self.api.metrics), PROMETHEUS)
            case ["kedge", "scheduling", "v1", "decisions", namespace, name]:
                return self._why(namespace, name)
            case [""]:
                return json_response({"paths": self._paths()})
            case _:
                return None

    def _why(self, namespace: str, name: str) -> Response:
        """Why a pod is where it is, if the scheduler that knows is at work in this server."""
        if self.decisions is None:
            why = "no scheduler is at work in this server: it has just started, or another leads"
            raise StatusError(503, "ServiceUnavailable", why)
        found = self.decisions.why(namespace, name)
        if found is None:
            raise not_found("", "pods", name)
        return json_response(found)

    def _paths(self) -> list[str]:
        versions = sorted({resource.api_version for resource in self.api.catalog})
        paths = [
            f"/apis/{version}" if "/" in version else f"/api/{version}" for version in versions
        ]
        fixed = ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3"]
        return sorted({*paths, *fixed, "/readyz", "/version"})

    def _health(self, http: HttpRequest, name: str, below: list[str]) -> Response | None:
        """Answer a health check in Kubernetes' format. Unlike upstream it shows the reason of a
        failure."""
        failures = {"ping": "", "store": self.api.store.failure, "watch-cache": ""}
        if name == "livez" and failures["store"] == DISK_FULL:
            # A restart would not help: the next process would have the same full disk.
            failures["store"] = ""
        if name == "readyz":
            failures["startup"] = "" if self.ready else "not ready"
        if below:
            why = failures.get(below[0])
            if why is None:
                return None
            return text_response(why or "ok", 500 if why else 200)
        good = not any(failures.values())
        if good and "verbose" not in http.query:
            return text_response("ok")
        lines = [
            f"[-]{check} failed: {why}" if why else f"[+]{check} ok"
            for check, why in failures.items()
        ]
        lines.append(f"{name} check {'passed' if good else 'failed'}")
        return text_response("\n".join(lines) + "\n", 200 if good else 500)


async def _with_notice(notice: str, answer: Answer) -> Response:
    """The answer of a resource that is on its way out."""
    response = answer if isinstance(answer, Response) else await answer
    response.headers += warning_headers([notice])
    return response


def _failed(error: StatusError, entry: audit.Entry | None, request: Request | None) -> Response:
    if entry is not None:
        entry.failed(error)
    response = failure(error)
    if request is not None and request.warnings:
        response.headers += warning_headers(request.warnings)
    return response


def failure(error: StatusError) -> Response:
    """An error as its Status document."""
    response = json_response(error.status(), error.code)
    if error.retry_after:
        response.headers.append(("Retry-After", str(error.retry_after)))
    return response


def version_info() -> dict[str, Any]:
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


_DEFECT: Final = "the server has a defect; its log has the details"


def _refused_by_disk(http: HttpRequest, error: StoreError | OSError) -> StatusError:
    """Return the error for a client whose request could not write to the store or to a file."""
    if isinstance(error, DiskFull):
        return insufficient_storage(str(error))
    if reserve_files.is_full(error):
        return insufficient_storage("the disk that holds the cluster's keys is full")
    log.error("request failed method=%s path=%s", http.method, http.path, exc_info=error)
    return internal(_DEFECT if isinstance(error, OSError) else f"the store failed: {error}")


def _bug(http: HttpRequest) -> Response:
    log.exception("request failed method=%s path=%s", http.method, http.path)
    return failure(internal(_DEFECT))


def prettified(http: HttpRequest, response: Response) -> Response:
    """The response, laid out for people if it is they who read it."""
    body = response.body
    if response.content_type == JSON and not callable(body) and _is_read_by_people(http):
        whole = body if isinstance(body, bytes) else b"".join(body)
        response.body = msgspec.json.format(whole, indent=2) + b"\n"
    return response


def _is_read_by_people(http: HttpRequest) -> bool:
    """As the request says; if it says nothing, if it comes from a tool whose users read along."""
    if "pretty" in http.query_string and "pretty" in http.query:
        return http.query.flag("pretty")
    return http.path.startswith("/api") and http.headers.get("user-agent", "").startswith(READERS)
