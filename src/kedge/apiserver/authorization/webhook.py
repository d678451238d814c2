"""The webhook authorizer: a SubjectAccessReview for each decision, and answers remembered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from kedge.apiserver.authorization.attributes import Attributes, Decision
from kedge.apiserver.authorization.configuration import WebhookAuthorizerConfiguration
from kedge.apiserver.pending import AnswerPending, remember, remembered
from kedge.apiserver.review_webhook import ReviewFailed
from kedge.machinery import cel
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_duration
from kedge.machinery.tenant import tenant

log = logging.getLogger(__name__)

MOST: Final = 8192
"""Decisions that are remembered."""
LONGEST_KEY: Final = 10_000
"""Bytes of a review whose decision is remembered, as in Kubernetes."""


class AccessReviewer(Protocol):
    """Gives a review its status; ReviewFailed if that fails."""

    async def status(self, review: dict[str, Any]) -> dict[str, Any]: ...


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _Remembered(NamedTuple):
    decision: Decision
    until: float


class WebhookAuthorizer:
    """One webhook of an AuthorizationConfiguration."""

    def __init__(
        self, name: str, hook: WebhookAuthorizerConfiguration, webhook: AccessReviewer, clock: Clock
    ) -> None:
        self.name = name
        self._webhook = webhook
        self._clock = clock
        self._version = f"authorization.k8s.io/{hook.subject_access_review_version}"
        self._allowed_seconds = _seconds(hook.authorized_ttl, hook.cache_authorized_requests)
        self._other_seconds = _seconds(hook.unauthorized_ttl, hook.cache_unauthorized_requests)
        self._failed = Decision(False, final=hook.failure_policy == "Deny")
        environment = cel.uses.access_review()
        self._conditions = [
            cel.CelCondition(each.expression, environment) for each in hook.match_conditions
        ]
        self._decisions: dict[bytes, _Remembered] = {}

    def decide(self, asked: Attributes) -> Decision:
        """Return the decision; one that is neither allowed nor final is no opinion.

        AnswerPending if the webhook has to be asked.
        """
        spec = review_spec(asked)
        key = msgspec.json.encode(spec)
        known = self._decisions.get(key)
        if known is not None and self._clock.monotonic() < known.until:
            return known.decision
        answer = remembered((self, key))
        if isinstance(answer, Decision):
            return answer
        raise AnswerPending(self._asking(key, spec, asked.user.name))

    def _asking(self, key: bytes, spec: dict[str, Any], user: str) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            try:
                if not await self._is_concerned(spec, user):
                    remember((self, key), Decision(False))
                    return
                decision = await self._asked(spec)
            except (ReviewFailed, cel.CelError) as error:
                log.error("authorization webhook failed name=%s error=%s", self.name, error)
                remember((self, key), self._failed)
                return
            remember((self, key), decision)
            self._keep(key, decision)

        return ask

    async def _is_concerned(self, spec: dict[str, Any], user: str) -> bool:
        if not self._conditions:
            return True
        # In a thread: how long the conditions take is for their author to say, and what they are
        # about for the user.
        with tenant(user or "-"):
            return await asyncio.to_thread(self._matches, spec)

    def _matches(self, spec: dict[str, Any]) -> bool:
        """Whether all conditions hold. If one is false, errors of the others do not count."""
        failure = None
        for condition in self._conditions:
            try:
                if not condition.holds({"request": condition_value(spec)}):
                    return False
            except cel.CelError as error:
                failure = error
        if failure is not None:
            raise failure
        return True

    async def _asked(self, spec: dict[str, Any]) -> Decision:
        sent = {"group" if k == "groups" and self._is_beta else k: v for k, v in spec.items()}
        review = {"apiVersion": self._version, "kind": "SubjectAccessReview", "spec": sent}
        try:
            status = msgspec.convert(await self._webhook.status(review), _AccessStatus)
        except msgspec.ValidationError as error:
            raise ReviewFailed(f"the answer is not a review: {error}") from None
        if status.allowed and status.denied:
            raise ReviewFailed("the webhook returned both allow and deny response")
        return Decision(status.allowed, status.reason[:4096], final=status.denied)

    @property
    def _is_beta(self) -> bool:
        return self._version.endswith("v1beta1")

    def _keep(self, key: bytes, decision: Decision) -> None:
        seconds = self._allowed_seconds if decision.allowed else self._other_seconds
        if not seconds or len(key) > LONGEST_KEY:
            return
        if len(self._decisions) >= MOST:
            self._decisions.pop(next(iter(self._decisions)))
        self._decisions[key] = _Remembered(decision, self._clock.monotonic() + seconds)


def _seconds(text: str, is_cached: bool) -> float:
    return parse_duration(text) / 1e9 if is_cached else 0.0


def review_spec(asked: Attributes) -> dict[str, Any]:
    """Return the spec of the SubjectAccessReview about an action."""
    user = asked.user
    spec: dict[str, Any] = {}
    if asked.plural:
        named = {
            "namespace": asked.namespace,
            "verb": asked.verb,
            "group": asked.group,
            "version": asked.version,
            "resource": asked.plural,
            "subresource": asked.subresource,
            "name": asked.name,
        }
        spec["resourceAttributes"] = {key: value for key, value in named.items() if value}
        requirements = [
            {"key": field, "operator": "In" if operator == "=" else "NotIn", "values": [value]}
            for field, operator, value in asked.fields.terms
        ]
        if requirements:
            spec["resourceAttributes"]["fieldSelector"] = {"requirements": requirements}
    else:
        spec["nonResourceAttributes"] = {"path": asked.path, "verb": asked.verb}
    spec["user"] = user.name
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.extra:
        # Keys in lower case, as headers of proxies make them.
        spec["extra"] = {key.lower(): list(values) for key, values in user.extra}
    if user.uid:
        spec["uid"] = user.uid
    return spec


_NAMES: Final = ("namespace", "verb", "group", "version", "resource", "subresource", "name")


def condition_value(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec as conditions see it: with the fields that upstream's value always has."""
    value = {"user": "", "groups": [], "uid": "", **spec}
    if "resourceAttributes" in spec:
        value["resourceAttributes"] = dict.fromkeys(_NAMES, "") | spec["resourceAttributes"]
    return value
