"""AdmissionWebhookApp: the request handler of the webhook."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final, TypeVar

from kedge.admission_webhook import decisions, review
from kedge.admission_webhook.limit_ranges import LimitRangesByNamespace
from kedge.admission_webhook.review import ReviewRequest, Verdict
from kedge.api.limits.bounds import NamespaceLimits
from kedge.apiserver.app import failure
from kedge.machinery.errors import (
    StatusError,
    internal,
    method_not_allowed,
    unavailable,
    unsupported_media_type,
)
from kedge.web.message import JSON, HttpRequest, Response, json_response, text_response

log = logging.getLogger(__name__)

_LARGE: Final = 64 << 10
"""Bytes of a review that is read and decided in a thread: a megabyte takes a tenth of a second."""
_LARGE_AT_ONCE: Final = 2
"""How many of them are worked on at the same time: one of 8 MiB takes more than 100 MB."""

Decision = Callable[[ReviewRequest, NamespaceLimits | None], Verdict]
T = TypeVar("T")

_DECISIONS: Final[dict[str, Decision]] = {
    "/mutate": decisions.mutate,
    "/validate": decisions.validate,
}


class AdmissionWebhookApp:
    """Answers reviews. It keeps nothing of them, so a dry run needs no other answer, and any number
    of webhooks may stand side by side."""

    def __init__(self, ranges: LimitRangesByNamespace, problem: Callable[[], str]) -> None:
        """`problem` returns why the LimitRanges are not known; empty if they are."""
        self._ranges = ranges
        self._problem = problem
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)

    async def handle(self, http: HttpRequest) -> Response:
        """Answer a request."""
        try:
            return await self._answer(http)
        except StatusError as error:
            return failure(error, http)
        except Exception:
            log.exception("request failed method=%s path=%s", http.method, http.path)
            return failure(internal("the webhook has a defect; its log has the details"), http)

    async def _answer(self, http: HttpRequest) -> Response:
        decide = _DECISIONS.get(http.path)
        if decide is None:
            return self._page(http)
        if http.method != "POST":
            raise method_not_allowed()
        if http.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise unsupported_media_type(http.headers.get("content-type", ""), [JSON])
        if problem := self._problem():
            # To allow what no LimitRange was asked about would be wrong, and so would be to refuse
            # by one that may be gone. The API server follows the failurePolicy of the webhook.
            raise unavailable(problem)
        async with self._large if len(http.body) > _LARGE else nullcontext():
            return await self._review(http, decide)

    async def _review(self, http: HttpRequest, decide: Decision) -> Response:
        size = len(http.body)
        request = await _beside(size, lambda: review.read(http.body))
        try:
            bounds = self._bounds(request)
            verdict = await _beside(size, lambda: decide(request, bounds))
        except StatusError as error:
            verdict = Verdict(error)
        if verdict.refusal is not None:
            _record(http.path, request, verdict.refusal)
        return json_response(await _beside(size, lambda: review.answer(request, verdict)))

    def _bounds(self, request: ReviewRequest) -> NamespaceLimits | None:
        """Return the limits of the namespace; raise a StatusError if they are invalid and the
        review is about a pod or a claim."""
        try:
            return self._ranges.bounds(request.namespace)
        except StatusError:
            if decisions.is_limited(request):
                raise
            # Workloads are only warned about, and an invalid LimitRange must stay correctable.
            return None

    def _page(self, http: HttpRequest) -> Response:
        if http.path not in ("/healthz", "/livez", "/readyz"):
            return text_response("404 page not found\n", 404)
        if http.path == "/readyz" and (problem := self._problem()):
            return text_response(f"{problem}\n", 500)
        return text_response("ok")


def _record(path: str, request: ReviewRequest, refusal: StatusError) -> None:
    about = request.resource
    log.info(
        "refused path=%s operation=%r resource=%r namespace=%r name=%r code=%d",
        *(path, request.operation[:20], about.resource[:63], request.namespace[:63]),
        *(request.name[:253], refusal.code),
    )


async def _beside(size: int, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if size > _LARGE else work()
