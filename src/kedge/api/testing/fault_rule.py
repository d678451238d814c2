"""FaultRule: which requests fail on purpose, and how."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kedge.machinery.errors import FieldError, StatusError, bad_request, invalid

CALL: Final = "call"
WEBHOOKS: Final = "webhooks"
VERBS: Final = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    CALL,
)
"""Those of requests, and `call` for calls of webhooks by the server."""
STAGES: Final = ("before", "after")
MOST_LATENCY: Final = 300.0
MOST_TIMES: Final = 1_000_000
MOST_RETRY_AFTER: Final = 3600
LONGEST: Final = 512
"""Characters of each text of a rule."""
ACCOUNT: Final = "system:serviceaccount:"


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a request that rules compare; missing ones are empty."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    user_agent: str = ""


class FaultRule(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename="camel",
):
    """Requests that fail on purpose. Every field that is set must fit the request."""

    id: str = ""
    """The name of the rule; the server chooses it."""
    verbs: tuple[str, ...] = ()
    """Empty for all."""
    resource: str = ""
    """As roles name it, with the group behind a dot if that matters: `pods`, `pods/status`,
    `deployments.apps/scale`, `pods/*`. Empty or `*` for every resource."""
    namespace: str = ""
    """`*` at the end stands for any rest, here, in `name` and in `user`."""
    name: str = ""
    """The name of the object. The path of a create has none."""
    user: str = ""
    service_account: str = ""
    """NAMESPACE/NAME, instead of a user."""
    user_agent: str = ""
    """How the User-Agent begins."""
    times: int = 0
    """How many requests fail; 0 for all until the rule is removed."""
    code: int = 0
    """The HTTP status of the answer; 0 if the rule does not make requests fail with one."""
    reason: str = ""
    message: str = ""
    retry_after: int = 0
    """Seconds, in the header Retry-After."""
    latency: float = 0.0
    """Seconds until the answer."""
    drop: bool = False
    """Whether the connection is closed without an answer."""
    stage: str = "before"
    """`after` lets the server do the work first: a write is stored, and its client does not learn
    about it."""
    hits: int = 0
    """How many requests the rule has fit; the server counts."""

    @property
    def fails(self) -> bool:
        """Whether the client does not get its answer."""
        return bool(self.code) or self.drop

    @property
    def is_spent(self) -> bool:
        """Whether the rule has fit as many requests as it may."""
        return bool(self.times) and self.hits >= self.times


def decoded(body: bytes) -> FaultRule:
    """Return the rule that a client sent; 400 or 422 with every mistake."""
    try:
        rule = msgspec.json.decode(body, type=FaultRule)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not a fault rule: {error}") from None
    if errors := list(rule_errors(rule)):
        raise invalid("", "FaultRule", rule.id, errors)
    return rule


def rule_errors(rule: FaultRule) -> Iterator[FieldError]:
    """Yield every mistake of a rule."""
    yield from _text_errors(rule)
    yield from _match_errors(rule)
    yield from _effect_errors(rule)
    for field, value in (("id", rule.id), ("hits", rule.hits)):
        if value:
            yield FieldError.forbidden(field, "the server sets it")


def _text_errors(rule: FaultRule) -> Iterator[FieldError]:
    for field, value in msgspec.to_builtins(rule).items():
        if isinstance(value, str) and len(value) > LONGEST:
            yield FieldError.too_long(field, LONGEST, "character")


def _match_errors(rule: FaultRule) -> Iterator[FieldError]:
    for i, verb in enumerate(rule.verbs[: len(VERBS) + 1]):
        if verb not in VERBS:
            yield FieldError.not_supported(f"verbs[{i}]", verb, VERBS)
    if len(rule.verbs) > len(VERBS):
        yield FieldError.too_many("verbs", len(rule.verbs), len(VERBS))
    if rule.resource.count("/") > 1 or rule.resource.startswith("/"):
        why = "must be RESOURCE or RESOURCE/SUBRESOURCE, such as pods/status"
        yield FieldError.invalid("resource", rule.resource, why)
    if rule.user and rule.service_account:
        yield FieldError.forbidden("serviceAccount", "may not be set together with user")
    parts = rule.service_account.split("/")
    if rule.service_account and (len(parts) != 2 or not all(parts)):
        yield FieldError.invalid("serviceAccount", rule.service_account, "must be NAMESPACE/NAME")
    if not 0 <= rule.times <= MOST_TIMES:
        why = f"must be between 0 (always) and {MOST_TIMES}"
        yield FieldError.invalid("times", rule.times, why)


def _effect_errors(rule: FaultRule) -> Iterator[FieldError]:
    if not rule.fails and not rule.latency:
        yield FieldError.required("code", "a rule needs an effect: code, latency or drop")
    if rule.code and not 400 <= rule.code <= 599:
        yield FieldError.invalid("code", rule.code, "must be between 400 and 599")
    if rule.code and rule.drop:
        yield FieldError.forbidden("drop", "a dropped connection gets no code")
    if not 0 <= rule.latency <= MOST_LATENCY:
        why = f"must be between 0 and {MOST_LATENCY:g} seconds"
        yield FieldError.invalid("latency", rule.latency, why)
    if rule.stage not in STAGES:
        yield FieldError.not_supported("stage", rule.stage, STAGES)
    yield from _answer_errors(rule)


def _answer_errors(rule: FaultRule) -> Iterator[FieldError]:
    for field, value in (("reason", rule.reason), ("message", rule.message)):
        if value and not rule.code:
            yield FieldError.forbidden(field, "may only be set together with code")
    if not 0 <= rule.retry_after <= MOST_RETRY_AFTER:
        why = f"must be between 0 and {MOST_RETRY_AFTER} seconds"
        yield FieldError.invalid("retryAfter", rule.retry_after, why)
    if rule.retry_after and rule.code != 429 and rule.code < 500:
        yield FieldError.forbidden("retryAfter", "clients heed it only with 429 and from 500 on")


def matches(rule: FaultRule, request: RequestFacts) -> bool:
    """Whether a rule fits a request."""
    return (
        _fits_verb(rule, request.verb)
        and _fits_resource(rule.resource, request)
        and _fits(rule.namespace, request.namespace)
        and _fits(rule.name, request.name)
        and _fits(_user(rule), request.user)
        and request.user_agent.startswith(rule.user_agent)
    )


def _fits_verb(rule: FaultRule, verb: str) -> bool:
    """Calls of webhooks fit only rules that are meant for them."""
    if rule.verbs:
        return verb in rule.verbs
    return verb != CALL or rule.resource == WEBHOOKS


def _user(rule: FaultRule) -> str:
    if not rule.service_account:
        return rule.user
    namespace, _, name = rule.service_account.partition("/")
    return f"{ACCOUNT}{namespace}:{name}"


def _fits(pattern: str, text: str) -> bool:
    if pattern.endswith("*"):
        return text.startswith(pattern[:-1])
    return not pattern or pattern == text


def _fits_resource(pattern: str, request: RequestFacts) -> bool:
    if pattern in ("", "*"):
        return True
    named, _, part = pattern.partition("/")
    plural, dot, group = named.partition(".")
    if plural not in ("*", request.resource) or (dot and group != request.group):
        return False
    return part == request.subresource or (part == "*" and bool(request.subresource))


_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def error_of(rule: FaultRule, request: RequestFacts) -> StatusError:
    """Return the error that a request fails with, as a server would have made it."""
    exists = rule.code == 409 and request.verb == "create" and not rule.reason
    reason = rule.reason or ("AlreadyExists" if exists else _REASONS.get(rule.code, ""))
    details: dict[str, Any] = {"name": request.name, "group": request.group}
    details["kind"] = request.resource
    return StatusError(
        rule.code,
        reason,
        rule.message or f"the fault rule {rule.id} made this request fail with {rule.code}",
        details={key: value for key, value in details.items() if value},
        retry_after=rule.retry_after or int(rule.code == 429),
    )
