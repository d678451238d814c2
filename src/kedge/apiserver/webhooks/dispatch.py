"""Whether a webhook is to be asked about an attempt, and what asking it leads to."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.catalog import Catalog
from kedge.api.core_v1 import namespace
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.long_work import off_loop
from kedge.apiserver.request import Request
from kedge.apiserver.watchcache import WatchCache
from kedge.apiserver.webhooks import review
from kedge.apiserver.webhooks.caller import Caller, CallFailed
from kedge.apiserver.webhooks.configuration import GROUP, Hook, Hooks, Match
from kedge.machinery.cel import CelError
from kedge.machinery.errors import StatusError, bad_request, forbidden, internal, not_found

log = logging.getLogger(__name__)

MOST_SECONDS = 34
"""How long all webhooks of one sort together may take for one request."""
_FAILED: Final = 500
"""The code in metrics of a call that fails; upstream has that of the answer, if there is one."""
TOO_LATE = "request did not complete within requested timeout"

Annotate = Callable[[Request, str, str], None]
"""Notes something about a request for the audit log."""
NamespaceLabels = Callable[[str], Mapping[str, str] | None]
"""The labels of a namespace; None if there is none of that name."""


def now() -> float:
    """Return the time of the event loop, to measure calls."""
    return asyncio.get_running_loop().time()


def no_annotations(request: Request, key: str, value: str) -> None:
    """Discard the annotation; used without an audit log."""


class ReviewedObjects(msgspec.Struct, frozen=True):
    """An attempt in the version in which a webhook wants to see it."""

    about: review.ReviewSubject
    match: Match
    object: dict[str, Any] | None
    old: dict[str, Any] | None

    @classmethod
    async def of(
        cls, attempt: Attempt, about: review.ReviewSubject, match: Match
    ) -> "ReviewedObjects":
        async def in_view(obj: Object | None) -> dict[str, Any] | None:
            document = await off_loop(attempt.weight, review.document_of, about.resource, obj)
            if document is None or not about.own_kind:
                return document
            return await review.seen_as(document, about.resource, match.resource)

        return cls(about, match, await in_view(attempt.object), await in_view(attempt.old))

    def description(self) -> dict[str, Any]:
        return review.description(self.about, self.match.resource)


class Webhooks:
    """The webhooks of one sort, and what is needed to ask them."""

    def __init__(
        self,
        hooks: Hooks,
        caller: Caller,
        namespace_labels: NamespaceLabels,
        annotate: Annotate = no_annotations,
        authorizer: Authorizer | None = None,
        step: str = "validating",
    ) -> None:
        self._hooks = hooks
        self._authorizer = authorizer
        self._caller = caller
        self._namespace_labels = namespace_labels
        self.annotate = annotate
        self.step = step
        """The label of metrics: `admit` of webhooks that change objects, else `validating`."""

    def matching(self, attempt: Attempt) -> tuple[Match, ...]:
        """The webhooks whose rules speak of such attempts."""
        request = attempt.request
        if request.resource.group == GROUP:
            # A webhook that breaks must not be able to keep itself from being repaired.
            return ()
        return self._hooks.matching(attempt.operation, request.resource, request.subresource)

    async def seen(
        self, attempt: Attempt, about: review.ReviewSubject, match: Match
    ) -> ReviewedObjects | None:
        """Return the objects for the webhook; None if its selectors or conditions exclude them."""
        hook = match.hook
        if hook.fault:
            raise internal(hook.fault)
        if not (self._in_namespaces(hook, attempt, about) and _in_objects(hook, attempt)):
            return None
        seen = await ReviewedObjects.of(attempt, about, match)
        return seen if await self._conditions_hold(attempt, hook, seen) else None

    def _in_namespaces(self, hook: Hook, attempt: Attempt, about: review.ReviewSubject) -> bool:
        if hook.namespaces.empty or not (about.namespace or _is_namespace(about)):
            return True
        if _is_namespace(about) and not about.subresource and attempt.object is not None:
            return hook.namespaces.matches(attempt.object.metadata.labels)
        labels = self._namespace_labels(about.namespace)
        if labels is None:
            raise not_found("", "namespaces", about.namespace)
        return hook.namespaces.matches(labels)

    async def _conditions_hold(self, attempt: Attempt, hook: Hook, seen: ReviewedObjects) -> bool:
        if hook.conditions is None:
            return True
        values = {
            "object": seen.object,
            "oldObject": seen.old,
            "request": seen.description(),
            **self._authorizer_of(attempt.request, seen.about),
        }
        metrics, labels = self._caller.metrics, (hook.name, "webhook", self.step, attempt.operation)
        begun = now()
        try:
            holds = await hook.conditions.hold(values)
            metrics.condition(*labels, now() - begun)
            if not holds:
                metrics.exclusion(*labels)
            return holds
        except CelError as error:
            metrics.condition(*labels, now() - begun)
            metrics.condition_error(*labels)
            if hook.ignores_failure:
                return False
            about = seen.about
            raise forbidden(
                about.resource.group, about.resource.plural, about.name, str(error)
            ) from None

    def _authorizer_of(self, request: Request, about: review.ReviewSubject) -> dict[str, Any]:
        return {} if self._authorizer is None else requested(self._authorizer, request, about)

    async def ask(
        self, request: Request, seen: ReviewedObjects, *, mutating: bool
    ) -> review.AdmissionVerdict:
        """The verdict of a webhook that allows; raises CallFailed, or StatusError to refuse."""
        begun = now()
        try:
            verdict = await self._ask(request, seen, mutating=mutating)
        except (CallFailed, StatusError) as error:
            self._record_failure(seen, error, now() - begun)
            raise
        self._record(seen, 200, now() - begun, rejected=False)
        return verdict

    def _record(self, seen: ReviewedObjects, code: int, seconds: float, *, rejected: bool) -> None:
        name, operation = seen.match.hook.name, seen.about.operation
        self._caller.metrics.webhook(
            name, self.step, operation, code=code, rejected=rejected, seconds=seconds
        )

    def _record_failure(
        self, seen: ReviewedObjects, error: CallFailed | StatusError, seconds: float
    ) -> None:
        hook, operation = seen.match.hook, seen.about.operation
        metrics = self._caller.metrics
        if isinstance(error, CallFailed) and hook.ignores_failure:
            metrics.failed_open(hook.name, self.step)
            self._record(seen, _FAILED, seconds, rejected=False)
            return
        code, why = (
            (_FAILED, "calling_webhook_error")
            if isinstance(error, CallFailed)
            else (error.code, "no_error")
        )
        metrics.rejection(hook.name, self.step, operation, error=why, code=code)
        self._record(seen, code, seconds, rejected=True)

    async def _ask(
        self, request: Request, seen: ReviewedObjects, *, mutating: bool
    ) -> review.AdmissionVerdict:
        hook = seen.match.hook
        if seen.about.dry_run and not hook.spares_dry_runs:
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        if not hook.review:
            known = "(v1, v1beta1)"
            raise CallFailed(
                "could not create admission objects: "
                f"webhook does not accept known AdmissionReview versions {known}"
            )
        uid = str(uuid.uuid4())
        told = seen.description() | {"object": seen.object, "oldObject": seen.old}
        body = review.encode(hook.review, uid, told)
        async with self._caller.answered(hook.client, body, hook.seconds) as answer:
            verdict = await self._verdict(seen, answer, uid, mutating=mutating)
            for key, value in verdict.annotations:
                self.annotate(request, f"{hook.name}/{key}", value)
            request.warnings += verdict.warnings
            if not verdict.allowed:
                raise await off_loop(len(answer), review.denial, hook.name, verdict.status)
            return replace(verdict, weight=len(body) + len(answer))

    async def _verdict(
        self, seen: ReviewedObjects, answer: bytes, uid: str, *, mutating: bool
    ) -> review.AdmissionVerdict:
        version = seen.match.hook.review
        try:
            return await off_loop(len(answer), review.read, answer, version, uid, mutating=mutating)
        except review.Unreadable as error:
            raise CallFailed(f"failed to call webhook: {error}") from None
        except review.Invalid as error:
            raise CallFailed(f"received invalid webhook response: {error}") from None


def webhooks_of(
    plural: str,
    catalog: Catalog,
    cache: WatchCache,
    caller: Caller,
    annotate: Annotate = no_annotations,
    authorizer: Authorizer | None = None,
) -> Webhooks:
    """The webhooks of one sort of configuration, named by its plural."""
    configurations = catalog.find(GROUP, "v1", plural)
    assert configurations is not None
    namespaces = cache.of(namespace.RESOURCE)

    def labels(name: str) -> Mapping[str, str] | None:
        item = namespaces.get(namespace.RESOURCE.key("", name))
        return None if item is None else item.labels

    hooks = Hooks(cache.of(configurations), catalog)
    step = "admit" if plural.startswith("mutating") else "validating"
    return Webhooks(hooks, caller, labels, annotate, authorizer, step)


def requested(
    authorizer: Authorizer, request: Request, about: review.ReviewSubject
) -> dict[str, Any]:
    """Return the authorizer's variables for expressions about a request."""
    from kedge.apiserver.authorization.expressions import authorizer_variables

    resource = about.resource
    asked = Attributes(
        request.user,
        "",
        resource.group,
        resource.version,
        resource.plural,
        about.subresource,
        about.namespace,
        about.name,
    )
    return authorizer_variables(authorizer, request.user, asked)


def failed(hook: Hook, error: CallFailed) -> StatusError | None:
    """Return the error of a request whose webhook could not be called; None if it is ignored."""
    told = f'failed calling webhook "{hook.name}": {error}'
    if hook.ignores_failure:
        log.warning("webhook failed and is passed over webhook=%s error=%s", hook.uid, error)
        return None
    return internal(told)


def _is_namespace(about: review.ReviewSubject) -> bool:
    return about.resource.plural == "namespaces" and not about.resource.group


def _in_objects(hook: Hook, attempt: Attempt) -> bool:
    if hook.objects.empty:
        return True
    objects = (attempt.object, attempt.old)
    return any(obj is not None and hook.objects.matches(obj.metadata.labels) for obj in objects)
