"""ReadBarrier: a request sees every write that any server acknowledged before the request came.

The caches of a server follow the store, a little later. So before a request is handled, the store
is asked for its newest revision, and the caches are waited for. Everything that a request is
decided with comes from these caches: objects, roles, tokens, quotas, limit ranges, definitions.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kedge.apiserver.app import failed
from kedge.apiserver.context import Answer, RequestContext
from kedge.apiserver.several.membership import ALONE_SECONDS, ServerMembership
from kedge.apiserver.watchcache import WatchCache
from kedge.machinery.clock import Clock, lease_clock
from kedge.machinery.errors import StatusCause, StatusError, timeout, unavailable
from kedge.storage.store import Store
from kedge.web.message import HttpRequest, Response

WAIT_SECONDS: Final = 3.0
"""How long a request waits for the caches."""
SETTLE_SECONDS: Final = 1.0
"""How long a request waits for kinds whose definitions have just changed."""
_PATHS: Final = ("/api", "/openapi")
_DIGITS: Final = 20

Handler = Callable[[HttpRequest], Answer]


class ReadBarrier:
    """Lets requests pass once the caches are as new as the store was when they came.

    Requests that come while the store is asked wait for the next answer, all for the same one. A
    server that knows that it is alone asks once a second at most: another one announces itself
    and waits for longer than that before it acknowledges anything.
    """

    def __init__(
        self,
        store: Store,
        cache: WatchCache,
        membership: ServerMembership,
        settled: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`settled` returns when all kinds are served that the caches define."""
        self._store = store
        self._cache = cache
        self._membership = membership
        self._settled = settled
        self._clock = clock
        self._leases = lease_clock(clock)
        self._alone_until = 0.0
        self._is_settled = True
        self._next: asyncio.Future[None] | None = None
        self._asked = asyncio.Event()

    def before(self, handler: Handler) -> Handler:
        """Return the handler behind the barrier."""

        def handle(http: HttpRequest) -> Answer:
            if self._is_open() or not http.path.startswith(_PATHS):
                return handler(http)
            if self._membership.is_current() and not needs_newest(http, self._cache.revision):
                return handler(http)
            if self._store.failure and http.method == "GET" and not self._membership.has_peers:
                # No other server is known: a single one stays readable without its store.
                return handler(http)
            return self._handle(handler, http)

        return handle

    async def run(self) -> None:
        """Ask the store for those that wait, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            future, self._next = self._next, None
            if future is None:
                continue
            try:
                await self._ask()
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # those who waited may have gone
            else:
                if not future.done():
                    future.set_result(None)

    async def passed(self) -> None:
        """Return once the caches are as new as the store is now; raises StatusError or
        StoreError."""
        if self._is_open():
            return
        if not self._membership.is_current():
            raise unavailable("this server has lost its store for a while, and is coming back")
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._asked.set()
        # Others wait for the same answer, and must not end with this request.
        await asyncio.shield(self._next)

    def _is_open(self) -> bool:
        return self._leases.monotonic() < self._alone_until and self._membership.is_alone

    async def _handle(self, handler: Handler, http: HttpRequest) -> Response:
        try:
            await self.passed()
        except Exception as error:
            return failed(RequestContext(http, self._clock.monotonic()), error)
        answer = handler(http)
        return answer if isinstance(answer, Response) else await answer

    async def _ask(self) -> None:
        began = self._leases.monotonic()
        revision = await self._store.newest()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._cache.reached(revision)
        except TimeoutError:
            raise _behind(revision, self._cache.revision) from None
        try:
            async with asyncio.timeout(SETTLE_SECONDS if self._is_settled else 0):
                await self._settled()
            self._is_settled = True
        except TimeoutError:
            # A definition may wait for a webhook, or for the end of thousands of objects. Other
            # requests wait for it once.
            self._is_settled = False
        self._alone_until = began + ALONE_SECONDS


def needs_newest(http: HttpRequest, reached: int) -> bool:
    """Whether a request may see less than the newest state only by mistake. A client that names a
    revision which the server has reached asks for no more than that; a server that the others may
    have given up does not answer it either, because roles may have changed long ago."""
    if not http.path.startswith(_PATHS):
        return False
    if http.method not in ("GET", "HEAD") or not http.query_string:
        return True
    version = http.query.get("resourceVersion")
    if not version or not (version.isascii() and version.isdecimal()) or len(version) > _DIGITS:
        return True
    return int(version) > reached


def _behind(revision: int, current: int) -> StatusError:
    message = f"Timeout: Too large resource version: {revision}, current: {current}"
    cause = StatusCause("ResourceVersionTooLarge", "Too large resource version")
    return timeout(message, causes=[cause], retry_after=1)
