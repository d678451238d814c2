"""Errors: StatusError for a whole request, FieldError for one field of an object."""

import json
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Self

import msgspec

from kedge.machinery.quantity import Quantity


class ErrorScope(Enum):
    """Which of kedge and Kubernetes rejects a value, where only one of them does."""

    KEDGE = "kedge"
    """Kubernetes has another complaint, or knows no such thing."""
    KUBERNETES = "Kubernetes"
    """It follows from an extension that kedge takes."""
    EXTENSION = "extension"
    """Kubernetes; kedge takes the value, which is an extension, and says so."""
    RATCHETED = "ratcheted"
    """None of them: the value was invalid before and has not changed. The client is warned."""


class FieldError(msgspec.Struct, frozen=True):
    """One error of one field, in Kubernetes' words."""

    reason: str
    field: str
    body: str
    """The message without the field's path."""
    scope: "ErrorScope | None" = None
    """Which one rejects the value, if not both."""

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def under(self, path: str) -> "FieldError":
        """The same error, seen from further out."""
        joint = "" if self.field.startswith("[") or not self.field else "."
        return FieldError(self.reason, f"{path}{joint}{self.field}", self.body, self.scope)

    def only(self, scope: "ErrorScope") -> "FieldError":
        """Return the same error with a scope."""
        return FieldError(self.reason, self.field, self.body, scope)

    @classmethod
    def required(cls, field: str, detail: str = "") -> Self:
        return cls("FieldValueRequired", field, _with_detail("Required value", detail))

    @classmethod
    def invalid(cls, field: str, value: object, detail: str) -> Self:
        body = _with_detail(f"Invalid value: {shown(value)}", detail)
        return cls("FieldValueInvalid", field, body)

    @classmethod
    def mistyped(cls, field: str, value: object, detail: str) -> Self:
        body = _with_detail(f"Invalid value: {shown(value)}", detail)
        return cls("FieldValueTypeInvalid", field, body)

    @classmethod
    def not_supported(cls, field: str, value: object, supported: Iterable[str]) -> Self:
        names = ", ".join(json.dumps(name) for name in supported)
        detail = f"supported values: {names}" if names else ""
        body = _with_detail(f"Unsupported value: {shown(value)}", detail)
        return cls("FieldValueNotSupported", field, body)

    @classmethod
    def not_found(cls, field: str, value: object) -> Self:
        return cls("FieldValueNotFound", field, f"Not found: {shown(value)}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> Self:
        return cls("FieldValueForbidden", field, _with_detail("Forbidden", detail))

    @classmethod
    def duplicate(cls, field: str, value: object) -> Self:
        return cls("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")

    @classmethod
    def too_long(cls, field: str, limit: int, unit: str = "byte") -> Self:
        plural = unit if limit == 1 else unit + "s"
        return cls("FieldValueTooLong", field, f"Too long: may not be more than {limit} {plural}")

    @classmethod
    def too_many(cls, field: str, count: int, limit: int) -> Self:
        items = "item" if limit == 1 else "items"
        body = f"Too many: {count}: must have at most {limit} {items}"
        return cls("FieldValueTooMany", field, body)


class StatusCause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cause of a failed request, as in the details of a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusError(Exception):
    """A failed request, as the client sees it: a Status with code, reason and message."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        causes: Sequence[StatusCause] = (),
        retry_after: int = 0,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.causes = tuple(causes)
        self.retry_after = retry_after
        self.continue_token = continue_token

    def status(self) -> dict[str, Any]:
        """The Status document that says this."""
        details = dict(self.details or {})
        if self.causes:
            details["causes"] = [msgspec.to_builtins(cause) for cause in self.causes]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if details or self.details is not None:
            status["details"] = details
        status["code"] = self.code
        return status


def not_found(group: str, plural: str, name: str) -> StatusError:
    message = f"{qualified(group, plural)} {quoted(name)} not found"
    return _about(404, "NotFound", group, plural, name, message)


def unknown_resource() -> StatusError:
    """The path names no resource that the server has."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def already_exists(group: str, plural: str, name: str, why: str = "") -> StatusError:
    message = f"{qualified(group, plural)} {quoted(name)} already exists"
    if why:
        message = f"{why}: {message}"
    return _about(409, "AlreadyExists", group, plural, name, message)


def conflict(
    group: str, plural: str, name: str, why: str, causes: Sequence[StatusCause] = ()
) -> StatusError:
    message = f"Operation cannot be fulfilled on {qualified(group, plural)} {quoted(name)}: {why}"
    return _about(409, "Conflict", group, plural, name, message, causes)


def forbidden(
    group: str, plural: str, name: str, why: str, causes: Sequence[StatusCause] = ()
) -> StatusError:
    what = qualified(group, plural) + (f" {quoted(name)}" if name else "")
    message = f"{what} is forbidden: {why}"
    return _about(403, "Forbidden", group, plural, name, message, causes)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """The object is well formed but breaks rules: every broken one is listed."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [StatusCause(error.reason, error.body, error.field) for error in errors]
    message = f"{qualified(group, kind)} {quoted(name)} is invalid: {summary}"
    return _about(422, "Invalid", group, kind, name, message, causes)


MAX_ERRORS = 1000
MAX_ERRORS_LENGTH = 1 << 20
"""Limits on the errors of one validation: each error may quote a whole list."""


def enough(errors: Iterable[FieldError]) -> list[FieldError]:
    """Collect errors up to the limits."""
    found: list[FieldError] = []
    length = 0
    for error in errors:
        found.append(error)
        length += len(error.field) + len(error.body)
        if len(found) >= MAX_ERRORS or length > MAX_ERRORS_LENGTH:
            break
    return found


def invalid_options(kind: str, errors: Sequence[FieldError]) -> StatusError:
    """A query parameter or options body breaks rules."""
    return invalid("meta.k8s.io", kind, "", errors)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed(verb: str = "") -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_acceptable(accepted: Iterable[str]) -> StatusError:
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(given: str, accepted: Iterable[str]) -> StatusError:
    kinds = ", ".join(accepted)
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {kinds}"
    )
    return StatusError(415, "UnsupportedMediaType", message)


def expired(message: str, continue_token: str = "") -> StatusError:
    return StatusError(410, "Expired", message, continue_token=continue_token)


def too_large(limit: int) -> StatusError:
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)


def internal(why: str) -> StatusError:
    message = f"Internal error occurred: {why}"
    return StatusError(500, "InternalError", message, causes=[StatusCause(message=why)])


def insufficient_storage(why: str) -> StatusError:
    """The disk is full.

    507 and not 503: client libraries, proxies and load balancers treat 503 as an unavailable
    server and retry, but this server answers and accepts deletions. client-go retries neither
    without a Retry-After, so kubectl prints the message immediately.
    """
    return StatusError(507, "InsufficientStorage", why)


def unavailable(why: str) -> StatusError:
    """The store does not answer, and the request had no effect: clients may repeat it at once."""
    return StatusError(503, "ServiceUnavailable", why, retry_after=1)


def timeout(
    message: str, *, causes: Sequence[StatusCause] = (), retry_after: int = 0
) -> StatusError:
    return StatusError(504, "Timeout", message, causes=causes, retry_after=retry_after)


def from_status(status: dict[str, Any]) -> StatusError:
    """The error that a Status document from a server stands for."""
    details = dict(status.get("details") or {})
    causes = [msgspec.convert(cause, StatusCause) for cause in details.pop("causes", None) or ()]
    return StatusError(
        status.get("code") or 500,
        status.get("reason") or "Unknown",
        status.get("message") or "",
        causes=causes,
        retry_after=details.pop("retryAfterSeconds", 0),
        details=details,
        continue_token=(status.get("metadata") or {}).get("continue") or "",
    )


def qualified(group: str, name: str) -> str:
    """`deployments.apps`, or `pods` for the core group."""
    return f"{name}.{group}" if group else name


def shown(value: object) -> str:
    """A rejected value as an error message quotes it."""
    if isinstance(value, Quantity):
        return json.dumps(str(value))
    if isinstance(value, str):
        return quoted(value)
    plain = msgspec.to_builtins(value, enc_hook=str)
    return go_json(plain)


def go_json(value: object, indent: int | None = None) -> str:
    """Return JSON as Go writes it, which escapes the characters that mean something in HTML."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    return text if _HTML.isdisjoint(text) else text.translate(_HTML_ESCAPES)


_HTML_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_HTML = frozenset("<>&\u2028\u2029")


def quoted(text: str) -> str:
    """Return a string in quotes as Go's `%q` writes it."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if known := _ESCAPES.get(char):
        return known
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


def _about(
    code: int,
    reason: str,
    group: str,
    kind: str,
    name: str,
    message: str,
    causes: Sequence[StatusCause] = (),
) -> StatusError:
    details = {"name": name, "group": group, "kind": kind}
    known = {key: value for key, value in details.items() if value}
    return StatusError(code, reason, message, details=known, causes=causes)


def _with_detail(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text
