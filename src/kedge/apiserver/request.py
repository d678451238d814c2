"""Request: one operation of a user on a resource, and the options in its query."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kedge.api.resource import Resource
from kedge.machinery.errors import FieldError, bad_request, invalid_options
from kedge.web.message import HttpRequest, Query

FIELD_VALIDATIONS = ("Ignore", "Warn", "Strict")


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user, or the anonymous one."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def tenant(self) -> str:
        """The tenant that the user's connections count for; empty if not authenticated. Service
        accounts count for their namespace: a user who may create one there may create many."""
        if self.name == ANONYMOUS.name:
            return ""
        return self.name.rpartition(":")[0] if self.name.startswith(_ACCOUNTS) else self.name

    @property
    def is_privileged(self) -> bool:
        """Whether the cluster or its repair depends on this user."""
        return not _PRIVILEGED.isdisjoint(self.groups)


_ACCOUNTS: Final = "system:serviceaccount:"
_PRIVILEGED: Final = frozenset(
    ("system:masters", "system:nodes", "system:serviceaccounts:kube-system")
)

ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Request(msgspec.Struct):
    """One operation on one resource."""

    http: HttpRequest
    user: User
    resource: Resource[Any]
    verb: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    warnings: list[str] = []
    """Texts for Warning headers of the response."""
    annotations: dict[str, str] = {}
    """Annotations for the audit event."""

    @property
    def query(self) -> Query:
        return self.http.query

    @property
    def header(self) -> dict[str, str]:
        return self.http.headers  # type: ignore[return-value]

    @property
    def key(self) -> str:
        """The key of the object in the store."""
        return stored(self.resource).key(self.namespace, self.name)


def stored(resource: Resource[Any]) -> Resource[Any]:
    """Return the resource as which objects are stored."""
    return resource.store_as.resource if resource.store_as is not None else resource


def dry_run(request: Request, options: str) -> bool:
    """Whether the request is a dry run, which does everything but store."""
    return check_dry_run(request.query.all("dryRun"), options)


def check_dry_run(values: list[str], options: str) -> bool:
    if not values or values == [""]:
        return False
    if any(value != "All" for value in values):
        error = FieldError.not_supported("dryRun", values, ["All"])
        raise invalid_options(options, [error])
    return True


def field_validation(request: Request, options: str) -> str:
    """Return how unknown and repeated fields are treated: Ignore, Warn or Strict."""
    value = request.query.get("fieldValidation")
    if not value:
        return "Warn"
    if value not in FIELD_VALIDATIONS:
        error = FieldError.not_supported("fieldValidation", value, sorted(FIELD_VALIDATIONS))
        raise invalid_options(options, [error])
    return value


def field_manager(request: Request, options: str) -> str:
    """Return the manager of the fields that the request writes."""
    manager = request.query.get("fieldManager")
    if not manager:
        return request.http.headers.get("user-agent", "").partition("/")[0][:128] or "unknown"
    if len(manager.encode()) > 128:
        raise invalid_options(options, [FieldError.too_long("fieldManager", 128)])
    if not manager.isprintable():
        error = FieldError.invalid(
            "fieldManager", manager, "should only contain printable characters"
        )
        raise invalid_options(options, [error])
    return manager


def integer(request: Request, name: str) -> int:
    """Return a non-negative integer from the query; 0 if it is missing."""
    text = request.query.get(name)
    if not text:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise bad_request(f'invalid value for query parameter {name}: "{text}"')
    return int(text)
