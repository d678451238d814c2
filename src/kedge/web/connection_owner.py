"""The interface between a connection and its server."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.machinery.turns import Turns, TurnShare
from kedge.web.body_budget import BodyBudget
from kedge.web.connection_limits import ConnectionSlots
from kedge.web.limits import ServerLimits
from kedge.web.message import HttpRequest, Response
from kedge.web.output import WriteQueue
from kedge.web.peer_certificate import PeerCertificates
from kedge.web.response_head import ResponseHeads
from kedge.web.tenant_turns import TenantTurns

if TYPE_CHECKING:
    from kedge.web.server_connection import ServerConnection

Handler = Callable[[HttpRequest], Response | Awaitable[Response]]
"""Answers a request; synchronously if it need not wait."""
Screen = Callable[[HttpRequest], Response | None]
"""Checks the head of a request before its body is read; returns the answer to a request that is
refused independently of its body."""
Refused = Callable[[str, StatusError], None]
"""Called with the target of a request that is refused before it is complete, and the error."""


class ConnectionOwner(WriteQueue, Protocol):
    """The server of a connection."""

    handler: Handler
    screen: Screen | None
    refused: Refused | None
    clock: Clock
    limits: ServerLimits
    slots: ConnectionSlots
    bodies: BodyBudget
    comma_headers: tuple[str, ...]
    certificates: PeerCertificates
    connections: "set[ServerConnection]"
    heads: ResponseHeads
    share: TurnShare
    pieces: Turns
    turns: "TenantTurns[ServerConnection]"

    def work_soon(self, connection: "ServerConnection") -> None: ...


class PendingRequest(NamedTuple):
    """A request that waits for its answer."""

    request: HttpRequest
    chunked: bool
    """Whether the peer understands chunked bodies; if not, the end of the connection is the end
    of the response."""
    body_bytes: int
    """Bytes to release from the body budget."""
