"""SigningRequests: records the requester of a certificate and the time of the decision.

Always enabled; it runs after the plugins that change objects.
"""

from typing import Any

from kedge.api.builtin import signing_requests
from kedge.api.model import Document, Object
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin
from kedge.apiserver.request import Request, User
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_time

GROUP = "certificates.k8s.io"
PLURAL = "certificatesigningrequests"


class SigningRequests(MutatingPlugin):
    """Writes into the requests what only the server knows."""

    name = "SigningRequests"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def mutate(self, attempt: Attempt) -> Object | None:
        obj, old = attempt.object, attempt.old
        if not concerns(attempt.request) or not isinstance(obj, Document):
            return obj
        if attempt.operation == "CREATE":
            return signing_requests.with_requester(obj, requester(attempt.request.user))
        if attempt.request.subresource and isinstance(old, Document):
            return signing_requests.with_condition_times(obj, old, format_time(self._clock.now()))
        return obj


def concerns(request: Request) -> bool:
    """Whether a request is about CertificateSigningRequests."""
    return request.resource.group == GROUP and request.resource.plural == PLURAL


def requester(user: User) -> dict[str, Any]:
    """Return the fields of a request that name the user who made it."""
    fields = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra},
    }
    return {name: value for name, value in fields.items() if value}
