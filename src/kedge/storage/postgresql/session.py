"""PostgresSession: one connection to the primary server, made again after it was lost."""

import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from kedge.settings.postgresql import PostgresHost
from kedge.storage.postgresql import library
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.postgresql.failures import PostgresFailure, PostgresFailureKind, failure_kind
from kedge.storage.postgresql.statements import SESSION
from kedge.storage.store import StoreError

CALL_SECONDS: Final = 5.0
"""How long a server may take for an answer, or for a connection."""
_CACHED_STATEMENTS: Final = 64

log = logging.getLogger(__name__)


class PostgresServers:
    """The servers of an address. One is the primary. All sessions of a store share this object:
    after one of them has found the primary, the others try that server first."""

    def __init__(self, connection: PostgresConnection) -> None:
        """Raises StoreError if the library is missing or files cannot be used."""
        self.library = library.load()
        self.connection = connection
        self._tls = connection.tls()
        connection.password()
        self._next = 0
        if connection.shows_objects:
            log.warning(
                "objects are sent in clear servers=%s: set --postgresql-cafile to use TLS",
                self.names,
            )

    @property
    def names(self) -> str:
        return ",".join(map(str, self.connection.address.hosts))

    async def connect(self) -> tuple[Any, str]:
        """Return a connection to the primary and its name; raises PostgresFailure."""
        hosts, failures = self.connection.address.hosts, []
        for offset in range(len(hosts)):
            number = (self._next + offset) % len(hosts)
            try:
                connected = await self._connect_to(hosts[number])
            except PostgresFailure as failure:
                failures.append(failure)
                continue
            self._next = number
            return connected, str(hosts[number])
        raise _worst(failures)

    async def _connect_to(self, host: PostgresHost) -> Any:
        address = self.connection.address
        tls: ssl.SSLContext | bool = False if host.is_local or self._tls is None else self._tls
        try:
            connected = await self.library.connect(
                host=host.host,
                port=host.port,
                user=address.user,
                database=address.database,
                password=self.connection.password(),
                ssl=tls,
                timeout=CALL_SECONDS,
                statement_cache_size=_CACHED_STATEMENTS,
                max_cached_statement_lifetime=0,
                target_session_attrs="any",
                server_settings={"application_name": "kedge"},
            )
        except Exception as error:
            raise self.unconnected(error, str(host)) from None
        try:
            await connected.execute(SESSION, timeout=CALL_SECONDS)
            if await connected.fetchval("SELECT pg_is_in_recovery()", timeout=CALL_SECONDS):
                raise PostgresFailure(
                    PostgresFailureKind.WITHOUT_EFFECT,
                    str(host),
                    "it is a standby, not the primary server",
                )
        except BaseException as error:
            connected.terminate()
            if isinstance(error, PostgresFailure) or not isinstance(error, Exception):
                raise
            raise self.unconnected(error, str(host)) from None
        return connected

    def failure(self, error: Exception, server: str) -> PostgresFailure:
        """Return an error of a request as a failure."""
        if isinstance(error, PostgresFailure):
            return error
        state = getattr(error, "sqlstate", None) or ""
        if state:
            text = getattr(error, "message", None) or str(error)
            return PostgresFailure(failure_kind(state, text), server, text)
        if isinstance(error, TimeoutError):
            return PostgresFailure(
                PostgresFailureKind.UNKNOWN, server, f"no answer in {CALL_SECONDS:g} s"
            )
        broken = (OSError, self.library.InterfaceError, self.library.InternalClientError)
        if isinstance(error, broken):
            return PostgresFailure(PostgresFailureKind.UNKNOWN, server, _words(error))
        raise error

    def unconnected(self, error: Exception, server: str) -> PostgresFailure:
        """Return the failure of a connection that was not made: nothing was asked."""
        tls = _tls_error(error)
        # Behind the end of a connection, other errors of TLS are as passing as the end itself.
        if tls and (tls is error or _tls_kind(tls) is not PostgresFailureKind.OTHER):
            return PostgresFailure(_tls_kind(tls), server, _words(tls))
        return self.failure(error, server).without_effect()


class PostgresSession:
    """Requests of one task at a time."""

    def __init__(self, servers: PostgresServers, begin: Callable[[Any], Awaitable[None]]) -> None:
        """`begin` prepares each new connection before it is used."""
        self._servers = servers
        self._begin = begin
        self._connected: Any = None
        self.server = servers.names

    async def connection(self) -> Any:
        """Return the connection, a new one if it was lost; raises PostgresFailure."""
        if self._connected is not None and self._connected.is_closed():
            self._connected = None
        if self._connected is None:
            connected, self.server = await self._servers.connect()
            try:
                await self._begin(connected)
            except BaseException as error:
                connected.terminate()
                if isinstance(error, StoreError) or not isinstance(error, Exception):
                    raise
                raise self._servers.unconnected(error, self.server) from None
            self._connected = connected
        return self._connected

    async def fetch(
        self, query: str, *arguments: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        """Return the rows of a query; raises PostgresFailure."""
        connected = await self.connection()
        try:
            rows: Sequence[Any] = await connected.fetch(
                query, *arguments, timeout=seconds or CALL_SECONDS
            )
        except Exception as error:
            failure = self._servers.failure(error, self.server)
            if failure.is_passing:
                self.disconnect()
            raise failure from None
        except BaseException:
            # The task was cancelled; so the answer of this request would be read by the next.
            self.disconnect()
            raise
        return rows

    def disconnect(self) -> None:
        """Drop the connection, with the requests on it."""
        connected, self._connected = self._connected, None
        if connected is not None:
            connected.terminate()


def _worst(failures: Sequence[PostgresFailure]) -> PostgresFailure:
    """Return the failure that says most: of several servers, those that are down say least."""
    lasting = [each for each in failures if not each.is_passing]
    if lasting and len(lasting) == len(failures):
        return lasting[0]
    passing = [each for each in failures if each.is_passing]
    if len(passing) == 1:
        return passing[0]
    texts = "; ".join(f"{each.server}: {each.text}" for each in passing)
    servers = ",".join(each.server for each in passing)
    return PostgresFailure(passing[0].kind, servers, texts)


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the error of TLS behind the end of a connection. With TLS 1.3, a server refuses a
    certificate only after the client has gone on to its first request."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__
    return error


def _tls_kind(error: ssl.SSLError) -> PostgresFailureKind:
    if isinstance(error, ssl.SSLCertVerificationError):
        return PostgresFailureKind.UNVERIFIED
    reason = error.reason or ""
    is_refusal = "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)
    return PostgresFailureKind.REFUSED_CERTIFICATE if is_refusal else PostgresFailureKind.OTHER


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
