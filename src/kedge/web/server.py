"""The HTTP server: its connections, and how they share the event loop."""

import asyncio
import logging
import socket
import ssl
from collections import deque
from typing import Any

from kedge.machinery.clock import Clock
from kedge.machinery.sockets import SocketMaker
from kedge.machinery.turns import StepTurns, Turns, TurnShare
from kedge.web.body_budget import BodyBudget
from kedge.web.connection_limits import ConnectionLimits, ConnectionSlots, affordable
from kedge.web.connection_owner import Handler, Refused, Screen
from kedge.web.http_date import http_date
from kedge.web.limits import ServerLimits
from kedge.web.listener import Listener, listening_sockets
from kedge.web.output import Output
from kedge.web.peer_certificate import PeerCertificates
from kedge.web.request_reader import COMMA_HEADERS
from kedge.web.response_head import ResponseHeads
from kedge.web.server_connection import ServerConnection
from kedge.web.tenant_turns import TenantTurns

log = logging.getLogger(__name__)

CLOSE_CHECKS = 5
"""How many times a closing server checks whether its idle peers have disconnected."""
_CLOSE_CHECK_SECONDS = 0.02
_TURN_SECONDS = 0.01
_TURN_VISITS = 32
"""How long, and for how many requests, pipelined requests are answered in one turn of the loop."""
_FIRST_SECONDS = 0.01
"""How long single requests are answered in one turn, as they are read. After a pause, hundreds of
peers may have sent one each; those beyond this time are answered like pipelined ones."""
_HANDSHAKE_SECONDS = 0.01
"""How long handshakes are continued in one turn. One step takes up to a millisecond, and hundreds
of peers may send at once."""
_PIECES_SECONDS = 0.01
"""How long pieces of large answers are made and written in one turn, over all connections."""


class HttpServer:
    """Listens, and keeps the set of open connections.

    All peers get equal shares of a turn of the event loop. A single request is answered when it
    is read, unless others have used up the time of the turn, or its tenant uses much of the loop.
    Pipelined requests are parsed and answered a few per turn, connection by connection, and
    meanwhile nothing more is read from the peer.
    """

    def __init__(
        self,
        handler: Handler,
        clock: Clock,
        limits: ServerLimits | None = None,
        *,
        connection_limits: ConnectionLimits | None = None,
        screen: Screen | None = None,
        refused: Refused | None = None,
        comma_headers: tuple[str, ...] = COMMA_HEADERS,
        shares_ports: bool = False,
    ) -> None:
        """`screen` checks heads before their bodies are read; `refused` is called for requests
        that never reach the handler; `comma_headers` are the prefixes of headers whose repeated
        values are not joined by commas, because they contain some; `shares_ports` says that other
        processes listen on the same ports, among which the kernel divides connections."""
        self.handler = handler
        self._shares_ports = shares_ports
        self.clock = clock
        self.limits = limits or ServerLimits()
        self.screen = screen
        self.refused = refused
        self.slots = ConnectionSlots(connection_limits or affordable())
        self.bodies = BodyBudget(self.limits.bodies_bytes)
        self.comma_headers = comma_headers
        self.certificates = PeerCertificates()
        self.connections: set[ServerConnection] = set()
        self.heads = ResponseHeads()
        self._unwritten: list[Output] = []
        self._backlog: deque[ServerConnection] = deque()
        """Connections with work that can be done now."""
        self._is_turn_arranged = False
        self.share = TurnShare(clock.monotonic, _FIRST_SECONDS)
        """The time for requests that are answered as they are read."""
        self.pieces = Turns(clock.monotonic, share_seconds=_PIECES_SECONDS)
        """The time for pieces of large answers, over all connections."""
        self._handshakes = StepTurns(clock.monotonic, _HANDSHAKE_SECONDS)
        self.turns: TenantTurns[ServerConnection] = TenantTurns(clock.monotonic, _work_on)
        self._listeners: list[Listener] = []

    async def listen(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        make: SocketMaker = socket.socket,
    ) -> int:
        """Accept connections; returns the port, which the kernel chooses for port 0."""
        self._stamp()
        before = len(self._listeners)
        is_shared = self._shares_ports and port != 0
        for listening in await listening_sockets(host, port, make, is_shared=is_shared):
            self._listeners.append(
                Listener(
                    listening,
                    tls,
                    slots=self.slots,
                    clock=self.clock,
                    turns=self._handshakes,
                    handshake_seconds=self.limits.handshake_seconds,
                    connection=lambda: ServerConnection(self),
                )
            )
        return self._listeners[before].port

    @property
    def port(self) -> int:
        """The port of the first listening socket; 0 before there is one."""
        return self._listeners[0].port if self._listeners else 0

    async def sweep(self) -> None:
        """Once a second: renew the Date header and end connections that are out of time."""
        while True:
            await self.clock.sleep(1)
            self._stamp()
            now = self.clock.monotonic()
            for connection in list(self.connections):
                connection.expire(now)

    async def close(self, grace: float = 5) -> None:
        """Stop listening, let running requests finish, then disconnect the remaining peers."""
        self.stop_listening()
        deadline = self.clock.monotonic() + grace
        for connection in list(self.connections):
            connection.finish()
        while any(connection.busy for connection in self.connections):
            if self.clock.monotonic() >= deadline:
                break
            await self.clock.sleep(_CLOSE_CHECK_SECONDS)
        # Idle peers get a moment to disconnect by themselves.
        for _ in range(CLOSE_CHECKS):
            if self.connections:
                await self.clock.sleep(_CLOSE_CHECK_SECONDS)
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.abort()

    def stop_listening(self) -> None:
        """Accept no further connection."""
        for listener in self._listeners:
            listener.stop()

    def write_soon(self, output: Output) -> None:
        """Flush an output once all requests that have arrived are answered.

        Waking a peer costs more than the write itself, and a peer that is awake already need not
        be woken again.
        """
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write_all)
        self._unwritten.append(output)

    def _write_all(self) -> None:
        outputs, self._unwritten = self._unwritten, []
        for output in outputs:
            output.flush()

    def work_soon(self, connection: ServerConnection) -> None:
        """Continue a connection's work in a later turn, after the others."""
        load = connection.load
        if load is not None and load.is_busy(self.clock.monotonic()):
            self.turns.wait(load, connection)
            return
        self._backlog.append(connection)
        if not self._is_turn_arranged:
            self._is_turn_arranged = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        until = self.clock.monotonic() + _TURN_SECONDS
        visits = 0
        while self._backlog and visits < _TURN_VISITS and self.clock.monotonic() < until:
            visits += 1
            _work_on(self._backlog.popleft())
        self._is_turn_arranged = bool(self._backlog)
        if self._is_turn_arranged:
            asyncio.get_running_loop().call_soon(self._work)

    def _stamp(self) -> None:
        self.heads.stamp(http_date(self.clock.now()))


def _work_on(connection: ServerConnection) -> None:
    try:
        connection.work()
    except Exception:
        log.exception("work on a connection failed")


def log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log in one line an error outside of any request; most are failed handshakes."""
    what = str(context.get("message", "")).partition("\n")[0]
    error = context.get("exception")
    if isinstance(error, RuntimeError) and "the handler is closed" in str(error):
        # uvloop reports this if bytes of a TLS peer arrive after the connection was aborted here.
        return
    log.warning("%s: %r", what, error)
