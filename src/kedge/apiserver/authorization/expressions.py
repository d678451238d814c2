"""The authorizer of expressions: what CEL calls `authorizer` asks the server's authorizer."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from kedge.apiserver.authorization.attributes import Attributes, Decision
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.request import User
from kedge.machinery.cel import CelError
from kedge.machinery.cel.libraries.authorizer import (
    RESOURCE_CHECK,
    AccessDecision,
    AuthorizerValue,
    CheckedAccess,
)
from kedge.machinery.selectors import parse_fields, parse_labels

_SECONDS: Final = 10.0
"""How long a thread waits for the event loop to answer."""


def authorizer_variables(authorizer: Authorizer, user: User, about: Attributes) -> dict[str, Any]:
    """Return `authorizer` and `authorizer.requestResource` for one request.

    Decisions are remembered for the request. The authorizer reads the watch cache, so an
    expression that runs in a thread has the event loop ask.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    known: dict[CheckedAccess, AccessDecision] = {}

    def authorize(access: CheckedAccess) -> AccessDecision:
        if access not in known:
            asked = _attributes(access, user)
            if threading.get_ident() == thread:
                decision = authorizer.decide(asked)
            else:
                decision = _from_loop(loop, lambda: authorizer.decide(asked))
            known[access] = AccessDecision(decision.allowed, decision.reason)
        return known[access]

    resource = CheckedAccess(
        "",
        group=about.group,
        resource=about.plural,
        subresource=about.subresource,
        namespace=about.namespace,
        name=about.name,
    )
    return {
        "authorizer": AuthorizerValue(authorize),
        "authorizer.requestResource": AuthorizerValue(authorize, RESOURCE_CHECK, resource),
    }


def _from_loop(loop: asyncio.AbstractEventLoop, decide: Callable[[], Decision]) -> Decision:
    """Return the decision that the event loop makes for this thread."""
    answer: Future[Decision] = Future()

    def settle() -> None:
        try:
            answer.set_result(decide())
        except Exception as error:
            answer.set_exception(error)

    loop.call_soon_threadsafe(settle)
    try:
        return answer.result(_SECONDS)
    except TimeoutError:
        raise CelError("authorizer did not answer") from None


def _attributes(access: CheckedAccess, user: User) -> Attributes:
    if access.service_account is not None:
        user = _account(*access.service_account)
    if access.path:
        return Attributes(user, access.verb, path=access.path)
    try:
        fields = parse_fields(access.field_selector)
        parse_labels(access.label_selector)
    except ValueError as error:
        raise CelError(str(error)) from None
    return Attributes(
        user,
        access.verb,
        access.group,
        "*",
        access.resource,
        access.subresource,
        access.namespace,
        access.name,
        fields=fields,
    )


def _account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(
        f"system:serviceaccount:{namespace}:{name}", groups=(*groups, "system:authenticated")
    )
