"""App: the list of steps that every request passes, in order."""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, NamedTuple

from kedge.apiserver import render, steps
from kedge.apiserver.aggregation.aggregator import Aggregator
from kedge.apiserver.api import Api
from kedge.apiserver.audit import AuditLog
from kedge.apiserver.authentication.authenticator import Authenticator
from kedge.apiserver.authentication.token_requests import TokenRequests
from kedge.apiserver.context import Answer, RequestContext
from kedge.apiserver.fairness.flow_controller import FlowController
from kedge.apiserver.handlers import handlers
from kedge.apiserver.inflight import InFlight, too_late
from kedge.apiserver.pages import Pages
from kedge.apiserver.pending import ANSWERS, MOST_ANSWERS, MOST_WAITING, AnswerPending
from kedge.apiserver.scheduling_decisions import SchedulingDecisions
from kedge.apiserver.steps import Step
from kedge.apiserver.telemetry import Telemetry
from kedge.apiserver.ui.on_demand import DashboardOnDemand
from kedge.machinery import reserve_files
from kedge.machinery.errors import (
    StatusCause,
    StatusError,
    insufficient_storage,
    internal,
    timeout,
    unavailable,
)
from kedge.storage.store import (
    DiskFull,
    FutureRevision,
    GuardLost,
    StoreError,
    StoreUnavailable,
    ValueTooLarge,
    WriteOutcomeUnknown,
)
from kedge.web.connection_limits import too_many
from kedge.web.message import HttpRequest, Response, warning_headers

log = logging.getLogger(__name__)

_DEFECT: Final = "the server has a defect; its log has the details"


class ControlSteps(NamedTuple):
    """The steps that a server for tests adds. Other servers have none, and no cost."""

    before_work: Sequence[Step] = ()
    """After authorization, before the handler."""
    after_work: Sequence[Step] = ()
    """When the handler has answered, or has begun to work."""
    last: Sequence[Step] = ()
    """When the response is complete, or has begun to stream."""


NO_CONTROLS: Final = ControlSteps()


class App:
    """The whole server, from an HTTP request to its response."""

    def __init__(
        self,
        api: Api,
        *,
        authenticator: Authenticator,
        token_requests: TokenRequests,
        decisions: SchedulingDecisions,
        pages: Pages,
        dashboard: DashboardOnDemand,
        telemetry: Telemetry,
        in_flight: InFlight,
        flows: FlowController,
        aggregator: Aggregator | None = None,
        audit_log: AuditLog | None = None,
        controls: ControlSteps = NO_CONTROLS,
    ) -> None:
        """`aggregator` forwards requests; None if this server answers all of them itself.
        `controls` are the steps of a server for tests."""
        self.api = api
        self.telemetry = telemetry
        self.flows = flows
        self._in_flight = in_flight
        self._waiting = 0
        """Requests that wait for answers of other servers."""
        self._head_steps: Sequence[Step] = (
            steps.route,
            dashboard.identify,
            steps.authenticate(authenticator),
            steps.impersonate(api.authorizer),
            steps.classify(flows),
            steps.authorize(api.authorizer, api.metrics),
            dashboard.check,
        )
        self._steps: Sequence[Step] = (
            *self._head_steps,
            *(() if aggregator is None else (steps.delegate(aggregator),)),
            *controls.before_work,
            dashboard.answer,
            steps.dispatch(api, handlers(authenticator, token_requests, decisions), pages),
            steps.limit(in_flight),
            steps.share(flows, api.cache),
            *controls.after_work,
        )
        self._last_steps: Sequence[Step] = (
            *(() if audit_log is None else (steps.audit(audit_log, api.clock),)),
            steps.count(telemetry, api.clock),
            steps.indent,
            *controls.last,
        )

    def handle(self, http: HttpRequest) -> Answer:
        """Answer a request: at once if that needs no waiting."""
        context = RequestContext(http, self.api.clock.monotonic())
        headers = http.headers
        try:
            for step in self._steps:
                step(context)
            answer = context.answer
            assert answer is not None
        except AnswerPending as pending:
            return self._begin_again(context, headers, pending)
        except Exception as error:
            answer = failed(context, error)
        if isinstance(answer, Response):
            return self._finish(context, answer)
        return self._wait(context, headers, answer)

    def screen(self, http: HttpRequest) -> Response | None:
        """Return the refusal of a request before its body is read; None if the body may be read.

        Requests without credentials therefore take no memory for bodies. kube-apiserver reads
        bodies in its handlers, after authentication and authorization, to the same effect. The
        request passes the same steps again once its body is there: in between its user may have
        lost its rights. A request that waits for the answer of another server is not refused here.
        """
        context = RequestContext(http, self.api.clock.monotonic())
        try:
            for step in self._head_steps:
                step(context)
        except AnswerPending:
            return None
        except Exception as error:
            return self._finish(context, failed(context, error))
        return None

    async def _wait(
        self, context: RequestContext, headers: Mapping[str, str], pending: Awaitable[Response]
    ) -> Response:
        try:
            response = await pending
        except AnswerPending as missing:
            return await self._begin_again(context, headers, missing)
        except Exception as error:
            response = failed(context, error)
        return self._finish(context, response)

    async def _begin_again(
        self, context: RequestContext, headers: Mapping[str, str], pending: AnswerPending
    ) -> Response:
        """Get the answer that the request needs, and begin it again, until none is missing."""
        if self._waiting >= MOST_WAITING:
            why = too_many("too many requests wait for answers of other servers")
            return self._finish(context, failed(context, why))
        self._waiting += 1
        token = ANSWERS.set({})
        try:
            return await self._answer_after(context, headers, pending)
        finally:
            ANSWERS.reset(token)
            self._waiting -= 1

    async def _answer_after(
        self, context: RequestContext, headers: Mapping[str, str], pending: AnswerPending
    ) -> Response:
        for _ in range(MOST_ANSWERS):
            await pending.ask()
            if self._is_late(context):
                return self._finish(context, failed(context, too_late()))
            # A step may have taken a token out of the headers.
            context.http.headers = headers
            context = RequestContext(context.http, context.started)
            try:
                for step in self._steps:
                    step(context)
                answer = context.answer
                assert answer is not None
                response = answer if isinstance(answer, Response) else await answer
            except AnswerPending as missing:
                pending = missing
            except Exception as error:
                return self._finish(context, failed(context, error))
            else:
                return self._finish(context, response)
        why = timeout(f"the request needs more than {MOST_ANSWERS} answers of other servers")
        return self._finish(context, failed(context, why))

    def _is_late(self, context: RequestContext) -> bool:
        seconds = self._in_flight.seconds
        return seconds is not None and self.api.clock.monotonic() - context.started >= seconds

    def _finish(self, context: RequestContext, response: Response) -> Response:
        context.response = response
        if context.flow is not None:
            response.headers += context.flow.headers
        for step in self._last_steps:
            step(context)
        return response


def failed(context: RequestContext, error: Exception) -> Response:
    """Return the response to a request that failed, and note why for the audit log."""
    shown = _status_of(context.http, error)
    context.reason, context.message = shown.reason, shown.message
    response = failure(shown, context.http)
    if context.request is not None and context.request.warnings:
        response.headers += warning_headers(context.request.warnings)
    return response


def failure(error: StatusError, http: HttpRequest) -> Response:
    """Return an error as its Status document."""
    response = render.status(http, error.status(), error.code)
    if error.retry_after:
        response.headers.append(("Retry-After", str(error.retry_after)))
    return response


def _status_of(http: HttpRequest, error: Exception) -> StatusError:
    """Return an error as the client sees it; the log has the details of a defect."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, DiskFull):
        return insufficient_storage(str(error))
    if isinstance(error, StoreUnavailable):
        return unavailable(str(error))
    if isinstance(error, GuardLost):
        return unavailable("this server leads no longer")
    if isinstance(error, WriteOutcomeUnknown):
        return timeout(str(error))
    if isinstance(error, FutureRevision):
        cause = StatusCause("ResourceVersionTooLarge", "Too large resource version")
        return timeout(f"Too large resource version: {error}", causes=[cause], retry_after=1)
    if isinstance(error, ValueTooLarge):
        return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {error}")
    if isinstance(error, OSError) and reserve_files.is_full(error):
        return insufficient_storage("the disk that holds the cluster's keys is full")
    log.error("request failed method=%s path=%s", http.method, http.path, exc_info=error)
    return internal(f"the store failed: {error}" if isinstance(error, StoreError) else _DEFECT)
