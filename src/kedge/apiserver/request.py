"""Request: one operation of a user on a resource, and the options in its query."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.metadata import validate_manager
from kedge.api.resource import Resource
from kedge.machinery.errors import FieldError, bad_request, invalid_options
from kedge.web.message import HttpRequest, Query

FIELD_VALIDATIONS = ("Ignore", "Warn", "Strict")
_INTEGER: Final = re.compile("[+-]?[0-9]+")
_LONGEST_INTEGER: Final = 40
"""Characters; leading zeros are allowed."""


class User(msgspec.Struct, frozen=True):
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
    is_unchanged: bool = False
    """Whether the write left its object as it was."""

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
    if errors := list(_dry_run_errors(values)):
        raise invalid_options(options, errors)
    return bool(values)


def _dry_run_errors(values: list[str]) -> Iterator[FieldError]:
    if any(value != "All" for value in values):
        yield FieldError.not_supported("dryRun", values, ["All"])


def field_validation(request: Request) -> str:
    """Return how unknown and repeated fields are treated: Ignore, Warn or Strict."""
    return request.query.get("fieldValidation") or "Warn"


def check_write_options(request: Request, options: str, errors: Iterable[FieldError] = ()) -> None:
    """Refuse a write whose query breaks rules. This comes before errors of the body."""
    query = request.query
    found = [*errors]
    if manager := query.get("fieldManager"):
        found += validate_manager(manager, "fieldManager")
    found += _dry_run_errors(query.all("dryRun"))
    validation = query.get("fieldValidation")
    if validation and validation not in FIELD_VALIDATIONS:
        known = ["", *sorted(FIELD_VALIDATIONS)]
        found.append(FieldError.not_supported("fieldValidation", validation, known))
    if found:
        raise invalid_options(options, found)


def field_manager(request: Request, options: str) -> str:
    """Return the manager of the fields that the request writes."""
    manager = request.query.get("fieldManager")
    if not manager:
        return request.http.headers.get("user-agent", "").partition("/")[0][:128] or "unknown"
    if errors := list(validate_manager(manager, "fieldManager")):
        raise invalid_options(options, errors)
    return manager


def integer(query: Query, name: str) -> int | None:
    """Return an integer from the query, None if the parameter is missing. An empty value is not a
    missing one, and of several values the first counts, as in Kubernetes."""
    if name not in query:
        return None
    text = query.get(name)
    if _INTEGER.fullmatch(text) is None:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    # The length comes first: Python does not convert thousands of digits.
    if len(text) > _LONGEST_INTEGER or not -(2**63) <= int(text) < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


class ListNumbers(NamedTuple):
    """The integers among the options of list, watch and deletecollection."""

    limit: int
    """The most objects of a page; 0 for all."""
    timeout_seconds: int | None
    """When a watch ends; 0 or None lets the server choose, a negative number ends it at once."""


def list_numbers(query: Query) -> ListNumbers:
    """Return the numbers of a list's query; each is checked, also where it has no effect."""
    timeout_seconds = integer(query, "timeoutSeconds")
    return ListNumbers(max(0, integer(query, "limit") or 0), timeout_seconds)
