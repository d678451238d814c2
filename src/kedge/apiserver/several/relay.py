"""FrameRelay: a usage frame that a node sends to one server reaches the others, too.

A node reports to the server that its connection leads to. That server takes the frame and passes
it on as it is, in the name of the node. A server that has just joined gets the newest frame of each
node. Nothing is stored: a frame that is lost is followed by the next one.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from ssl import SSLContext
from typing import Final
from urllib.parse import unquote, urlsplit

from kedge.apiserver.context import Answer
from kedge.apiserver.several.membership import ServerMembership
from kedge.client.http import HttpTransport
from kedge.client.transport import Call
from kedge.machinery.clock import Clock
from kedge.metrics.frame_codec import CONTENT_TYPE, PREFIX
from kedge.web.message import HttpRequest, Response

log = logging.getLogger(__name__)

RELAYED: Final = "kedge-relayed"
"""The header of a frame that comes from another server, which is not passed on again."""
SERVER_NAME: Final = "kubernetes.default.svc"
"""Only servers have this name in their certificates; nodes do not."""
MOST_NODES: Final = 5000
"""Nodes whose newest frame is kept for servers that join."""
LOOK_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 5.0

Handler = Callable[[HttpRequest], Answer]


class FrameRelay:
    """Passes on the frames that this server accepts. The owner must `run` it."""

    def __init__(
        self, membership: ServerMembership, tls: Callable[[], SSLContext], clock: Clock
    ) -> None:
        """`tls` has the certificate by which servers call nodes; other servers trust it, too."""
        self._membership = membership
        self._tls = tls
        self._clock = clock
        self._newest: dict[str, bytes] = {}
        """The newest frame of each node."""
        self._unsent: dict[str, dict[str, bytes]] = {}
        """By the address of a server: frames that it has not got. A newer one of a node replaces
        the one before, so that a slow server costs no memory."""
        self._transports: dict[str, HttpTransport] = {}
        self._wake = asyncio.Event()

    def behind(self, handler: Handler) -> Handler:
        """Return a handler that passes on what it accepts."""

        def handle(http: HttpRequest) -> Answer:
            answer = handler(http)
            is_frame = http.method == "POST" and http.path.startswith(PREFIX)
            if is_frame and RELAYED not in http.headers and isinstance(answer, Response):
                self._accepted(http, answer)
            return answer

        return handle

    def _accepted(self, http: HttpRequest, answer: Response) -> None:
        name = unquote(http.path.removeprefix(PREFIX))
        if answer.status != HTTPStatus.OK:
            return
        self._newest.pop(name, None)
        self._newest[name] = http.body
        if len(self._newest) > MOST_NODES:
            # That of the node that has been silent for longest: most often it is gone.
            del self._newest[next(iter(self._newest))]
        for unsent in self._unsent.values():
            unsent[name] = http.body
        self._wake.set()

    async def run(self) -> None:
        """Send frames to the other servers, until cancelled."""
        try:
            while True:
                await self._follow()
                for url in [url for url, unsent in self._unsent.items() if unsent]:
                    await self._send(url)
                await self._rest()
        finally:
            for transport in self._transports.values():
                await transport.close()

    async def _rest(self) -> None:
        """Wait for a frame, or for the time to look at who is there."""
        async with asyncio.TaskGroup() as tasks:
            timer = tasks.create_task(self._clock.sleep(LOOK_SECONDS))
            timer.add_done_callback(lambda _: self._wake.set())
            await self._wake.wait()
            timer.cancel()
        self._wake.clear()

    async def _follow(self) -> None:
        """Keep in step with the servers that are alive; a new one gets all newest frames."""
        # Leases are objects that others may write: what is no address of a server is left out.
        alive = {peer.url for peer in self._membership.peers if is_server_url(peer.url)}
        for url in sorted(alive - self._unsent.keys()):
            self._unsent[url] = dict(self._newest)
        for url in self._unsent.keys() - alive:
            del self._unsent[url]
            await self._disconnect(url)

    async def _send(self, url: str) -> None:
        unsent, self._unsent[url] = self._unsent[url], {}
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for name, frame in unsent.items():
                    await self._transport(url).send(relayed(name, frame))
        except (OSError, TimeoutError, ValueError) as error:
            # It gets the next frames; a server that is gone leaves the members soon. A ValueError
            # is that of a host name that cannot be one.
            log.debug("frames not passed on server=%s error=%s", url, error)
            # The next connection is made with the certificate of that time.
            await self._disconnect(url)

    async def _disconnect(self, url: str) -> None:
        transport = self._transports.pop(url, None)
        if transport is not None:
            await transport.close()

    def _transport(self, url: str) -> HttpTransport:
        found = self._transports.get(url)
        if found is None:
            found = HttpTransport(url, tls=self._tls(), server_name=SERVER_NAME)
            self._transports[url] = found
        return found


def is_server_url(url: str) -> bool:
    """Whether requests can be sent there, and only to a server with a certificate."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def relayed(name: str, frame: bytes) -> Call:
    """Return the request that passes on a frame, in the name of its node."""
    headers = {
        "content-type": CONTENT_TYPE,
        "impersonate-user": f"system:node:{name}",
        "impersonate-group": "system:nodes",
        RELAYED: "true",
    }
    return Call("POST", f"{PREFIX}{name}", "", headers, frame)
