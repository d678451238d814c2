"""DecisionRelay: decisions of the scheduler, from the server in whose process it runs.

The scheduler keeps its decisions in memory, and one of several servers runs it. The others ask that
server for a user whom they have authorized, and pass on its answer as it is.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from ssl import SSLContext

from kedge.apiserver.request import Request
from kedge.apiserver.several.membership import ServerMembership
from kedge.apiserver.several.relay import (
    ANSWER_SECONDS,
    RELAYED,
    SERVER_NAME,
    is_server_url,
)
from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Reply
from kedge.web.message import Response

log = logging.getLogger(__name__)


class DecisionRelay:
    """Asks the other servers."""

    def __init__(self, membership: ServerMembership, tls: Callable[[], SSLContext]) -> None:
        """`tls` has the certificate by which other servers trust this one."""
        self._membership = membership
        self._tls = tls

    async def answer(self, request: Request) -> Response | None:
        """Return the answer of the server that runs the scheduler; None if none does."""
        if RELAYED in request.header:
            return None  # each server would ask all others
        for url in [peer.url for peer in self._membership.peers if is_server_url(peer.url)]:
            reply = await self._ask(url, request)
            if reply is not None and reply.status != HTTPStatus.SERVICE_UNAVAILABLE:
                return Response(reply.status, reply.body, reply.headers.get("content-type", ""))
        return None

    async def _ask(self, url: str, request: Request) -> Reply | None:
        http = request.http
        headers = {RELAYED: "true", "accept": http.headers.get("accept", "*/*")}
        try:
            transport = HttpTransport(url, tls=self._tls(), server_name=SERVER_NAME)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await transport.send(Call("GET", http.path, http.query_string, headers))
            finally:
                await transport.close()
        except (OSError, TimeoutError, ValueError) as error:
            log.debug("decisions not asked for server=%s error=%s", url, error)
            return None
