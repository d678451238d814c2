"""HTTP messages, independent of the HTTP library: request, response and a sink for streams."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import msgspec

from kedge.web.connection_limits import ConnectionCaller
from kedge.web.duplex import Duplex

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
_LINE_ENDS: Final = {ord(sign): " " for sign in "\r\n\0"}


def header_line(name: str, value: str) -> str:
    """Return a header field as it is sent."""
    if "\n" in value or "\r" in value or "\0" in value:
        value = one_line(value)
    return f"{name}: {value}\r\n"


def one_line(value: str) -> str:
    """Return a header's value with blanks for line ends, which would begin another field or the
    body (response splitting)."""
    return value.translate(_LINE_ENDS)


class HttpRequest(msgspec.Struct):
    """A request as it was received."""

    method: str
    path: str
    """Still percent-encoded."""
    query_string: str = ""
    headers: Mapping[str, str] = {}
    """Names in lower case; repeated ones joined by a comma, those that name users by a line
    break."""
    body: bytes = b""
    peer_certificate: Mapping[str, Any] | None = None
    """The verified client certificate, as the ssl module shows it, its hash under `sha256`, and
    that of the trusted certificate under `authority`."""
    peer: str = ""
    """The address of the client."""
    on_identified: Callable[[ConnectionCaller], None] | None = None
    """Called through `identified`."""
    on_queued: Callable[[bool], None] | None = None
    """Called with True when the request waits in a queue behind others, and with False when its
    turn has come. None if it does not matter."""

    _query: "Query | None" = None

    def identified(self, caller: ConnectionCaller) -> None:
        """Report the caller to the server after authentication; raises 429 if the caller has too
        many connections."""
        if self.on_identified is not None:
            self.on_identified(caller)

    @property
    def query(self) -> "Query":
        if self._query is None:
            self._query = Query(self.query_string) if self.query_string else _NO_QUERY
        return self._query


class Query:
    """The parameters of a URL; asking for one gives its first value."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, list[str]] = {}
        if text:
            for name, value in parse_qsl(text, keep_blank_values=True):
                self._values.setdefault(name, []).append(value)

    def get(self, name: str) -> str:
        values = self._values.get(name)
        return values[0] if values else ""

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        """A parameter that is true when it is there, unless it says `false` or `0`."""
        values = self._values.get(name)
        return values is not None and values[0] != "0" and values[0].lower() != "false"

    def __contains__(self, name: str) -> bool:
        return name in self._values


_NO_QUERY: Final = Query("")


class Sink(Protocol):
    """The destination of a streamed body."""

    @property
    def paused(self) -> bool:
        """Whether the peer reads more slowly than we write."""
        ...

    def write(self, data: bytes) -> None:
        """Send at once; never waits, so look at `paused`."""
        ...

    async def drain(self) -> None:
        """Return when the peer has caught up, or raise if it has gone."""
        ...


Stream = Callable[[Sink], Awaitable[None]]

TakeOver = Callable[[Duplex], Awaitable[None]]
"""Speaks on a connection that no longer carries HTTP; it is closed when this returns."""


class Response(msgspec.Struct):
    """An answer: whole bytes, pieces that are pulled as the peer reads, or a stream."""

    status: int = 200
    body: bytes | Iterable[bytes] | Stream = b""
    content_type: str = JSON
    """Empty sends none."""
    headers: list[tuple[str, str]] = []
    take_over: TakeOver | None = None
    """Continues on the connection after a response with status 101. The request must have asked for
    an upgrade (`asks_upgrade`)."""
    length: int | None = None
    """The Content-Length of a streamed body, or of a response to HEAD, if it is known. The stream
    must write exactly as many bytes, or raise ConnectionError."""


def asks_upgrade(headers: Mapping[str, str], protocol: str = "") -> bool:
    """Whether a request wants its connection to speak another protocol, or that one."""
    tokens = [token.strip() for token in headers.get("connection", "").lower().split(",")]
    wanted = headers.get("upgrade", "").lower()
    return "upgrade" in tokens and (wanted == protocol.lower() if protocol else bool(wanted))


def json_response(document: Any, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(document))


def text_response(text: str, status: int = 200) -> Response:
    return Response(status, text.encode(), TEXT)


WARNINGS_LENGTH = 4096
"""Characters of warnings in one answer; clients refuse answers with more headers than they like."""
WARNING_LENGTH = 256
"""Characters of one warning when all of them together are too long."""


def warning_headers(texts: Sequence[str]) -> list[tuple[str, str]]:
    """The headers with which kubectl is made to print `Warning: ...`, each text once."""
    once = list(dict.fromkeys(texts))
    if sum(map(len, once)) <= WARNINGS_LENGTH:
        return [_warning(text) for text in once]
    kept = []
    room = WARNINGS_LENGTH
    for text in once:
        room -= min(len(text), WARNING_LENGTH)
        if room < 0:
            break
        kept.append(_warning(text[:WARNING_LENGTH]))
    return kept


def _warning(text: str) -> tuple[str, str]:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    printable = "".join(c if c.isprintable() else " " for c in escaped)
    # A header holds bytes, which are written as Latin-1. Upstream sends the bytes of UTF-8.
    return "Warning", f'299 - "{printable.encode(errors="replace").decode("latin-1")}"'
