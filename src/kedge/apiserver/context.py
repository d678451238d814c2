"""RequestContext: what the steps of the server have learned about one request so far."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

import msgspec

from kedge.apiserver.authorization.attributes import Attributes, Decision, of_path, of_resource
from kedge.apiserver.fairness.flow_controller import RequestClass
from kedge.apiserver.request import Request, User
from kedge.apiserver.route import ResourcePath
from kedge.web.message import HttpRequest, Response

if TYPE_CHECKING:
    from kedge.api.testing.fault_rule import FaultRule

Answer = Response | Awaitable[Response]
"""A response, or work that returns one."""

UNKNOWN: Final = User("")
"""The user of a request before authentication."""


class RequestContext(msgspec.Struct):
    """One request on its way through the server. Each field is set by the step of that name, and
    holds its default until then."""

    http: HttpRequest
    started: float
    """Monotonic time at which the head of the request was complete."""
    target: ResourcePath | None = None
    """The resource path; None for any other path, such as /version."""
    verb: str = ""
    """The verb on a resource; empty for any other path."""
    authenticated: User = UNKNOWN
    """The user whose credentials the request carries."""
    user: User = UNKNOWN
    """The user whose rights count: the authenticated one, or the one it impersonates."""
    flow: RequestClass | None = None
    """The flow and the priority level; None if the request failed before they were found."""
    decision: Decision | None = None
    """The authorizer's decision; None if it was not asked."""
    fault: "FaultRule | None" = None
    """The rule by which the request fails on purpose, in clusters for tests."""
    request: Request | None = None
    """The operation on a resource; None if the request is refused earlier or names no resource."""
    answer: Answer | None = None
    response: Response | None = None
    """The answer once it is complete, or has begun to stream."""
    reason: str = ""
    message: str = ""
    """Reason and message of the error that the request failed with. Not the error itself: its
    traceback refers to this context, and the two would be freed only by the garbage collector."""

    def attributes(self, user: User) -> Attributes:
        """Return what the request would do if it were from this user."""
        if self.target is None:
            return of_path(user, self.http.method, self.http.path)
        return of_resource(user, self.verb, self.target, self.http)

    def labels(self) -> tuple[str, str, str, str]:
        """Return verb, group, resource and subresource, as the request metrics name them."""
        request = self.request
        if request is None:
            return self.http.method, "", "", ""
        resource = request.resource
        subresource = request.subresource
        if subresource and resource.subresource(subresource) is None:
            # A text of a client: each would be a series that is kept for ever.
            subresource = ""
        return self.verb.upper(), resource.group, resource.plural, subresource


def is_stream(response: Response) -> bool:
    """Whether the response only begins here: a watch, a log that is followed, a tunnel."""
    return callable(response.body) or response.take_over is not None
