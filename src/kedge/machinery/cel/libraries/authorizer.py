"""The authorizer: expressions ask whether a user may do something."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, NoReturn

from kedge.machinery.cel.errors import CelError
from kedge.machinery.cel.functions import Functions, library, method
from kedge.machinery.cel.types import BOOL, STRING, CelType

AUTHORIZER: Final = CelType("opaque", "kubernetes.authorization.Authorizer")
PATH_CHECK: Final = CelType("opaque", "kubernetes.authorization.PathCheck")
GROUP_CHECK: Final = CelType("opaque", "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK: Final = CelType("opaque", "kubernetes.authorization.ResourceCheck")
DECISION: Final = CelType("opaque", "kubernetes.authorization.Decision")

CHECK_PRICE: Final = 350_000
"""Two checks fit into one evaluation."""


class CheckedAccess(NamedTuple):
    """A question for the authorizer."""

    verb: str
    service_account: tuple[str, str] | None = None
    """Namespace and name of the account; None for the user of the request."""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


class AccessDecision(NamedTuple):
    """The authorizer's answer."""

    allowed: bool
    reason: str = ""
    error: str = ""


Authorize = Callable[[CheckedAccess], AccessDecision]


class AuthorizerValue:
    """A question that an expression is building."""

    __slots__ = ("_authorize", "access", "cel_type")

    def __init__(
        self, authorize: Authorize, type: CelType = AUTHORIZER, access: CheckedAccess | None = None
    ) -> None:
        self._authorize = authorize
        self.cel_type = type.name
        self.access = access or CheckedAccess("")

    def refined(self, type: CelType, **changes: Any) -> "AuthorizerValue":
        """Return a more exact question."""
        return AuthorizerValue(self._authorize, type, self.access._replace(**changes))

    def check(self, verb: str) -> "DecisionValue":
        """Ask."""
        return DecisionValue(self._authorize(self.access._replace(verb=verb)))


class AbsentAuthorizer(AuthorizerValue):
    """An authorizer that expressions may name, but that is not there when they are evaluated."""

    __slots__ = ("_name",)

    def __init__(self, name: str, type: CelType) -> None:
        super().__init__(self._missing, type)
        self._name = name

    def refined(self, type: CelType, **changes: Any) -> AuthorizerValue:
        return self._missing()

    def _missing(self, *_: CheckedAccess) -> NoReturn:
        raise CelError(f"no such attribute(s): {self._name}")


class DecisionValue:
    """An answer as a value of expressions."""

    __slots__ = ("decision",)

    cel_type: ClassVar[str] = DECISION.name

    def __init__(self, decision: AccessDecision) -> None:
        self.decision = decision


def _path(authorizer: AuthorizerValue, path: str) -> AuthorizerValue:
    if not path.strip():
        raise CelError("path must not be empty")
    return authorizer.refined(PATH_CHECK, path=path)


def _field(type: CelType, field: str) -> Callable[[AuthorizerValue, str], AuthorizerValue]:
    return lambda check, value: check.refined(type, **{field: value})


def _account(authorizer: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    return authorizer.refined(AUTHORIZER, service_account=(namespace, name))


def _check_price(*_: Any) -> int:
    return CHECK_PRICE


def _selector_price(_: Any, selector: str) -> int:
    parse = math.ceil(len(selector) * 0.1)
    return 10 + parse + math.ceil(math.ceil(len(selector) * 0.5) * 50)


_R: Final = (RESOURCE_CHECK, STRING)

AUTHORIZER_FUNCTIONS: Final[Functions] = library(
    path=(method("authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, _path),),
    group=(
        method("authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, _field(GROUP_CHECK, "group")),
    ),
    serviceAccount=(
        method("authorizer_serviceaccount", (AUTHORIZER, STRING, STRING), AUTHORIZER, _account),
    ),
    resource=(
        method(
            "groupcheck_resource",
            (GROUP_CHECK, STRING),
            RESOURCE_CHECK,
            _field(RESOURCE_CHECK, "resource"),
        ),
    ),
    subresource=(
        method(
            "resourcecheck_subresource",
            _R,
            RESOURCE_CHECK,
            _field(RESOURCE_CHECK, "subresource"),
        ),
    ),
    namespace=(
        method("resourcecheck_namespace", _R, RESOURCE_CHECK, _field(RESOURCE_CHECK, "namespace")),
    ),
    name=(method("resourcecheck_name", _R, RESOURCE_CHECK, _field(RESOURCE_CHECK, "name")),),
    fieldSelector=(
        method(
            "authorizer_fieldselector",
            _R,
            RESOURCE_CHECK,
            _field(RESOURCE_CHECK, "field_selector"),
            _selector_price,
        ),
    ),
    labelSelector=(
        method(
            "authorizer_labelselector",
            _R,
            RESOURCE_CHECK,
            _field(RESOURCE_CHECK, "label_selector"),
            _selector_price,
        ),
    ),
    check=(
        method(
            "pathcheck_check", (PATH_CHECK, STRING), DECISION, AuthorizerValue.check, _check_price
        ),
        method("resourcecheck_check", _R, DECISION, AuthorizerValue.check, _check_price),
    ),
    errored=(
        method("decision_errored", (DECISION,), BOOL, lambda value: bool(value.decision.error)),
    ),
    error=(method("decision_error", (DECISION,), STRING, lambda value: value.decision.error),),
    allowed=(method("decision_allowed", (DECISION,), BOOL, lambda value: value.decision.allowed),),
    reason=(method("decision_reason", (DECISION,), STRING, lambda value: value.decision.reason),),
)
