"""Parses the requests of one connection with httptools, within the server's limits."""

import re
from typing import Final, NamedTuple, Protocol

import httptools

from kedge.machinery.errors import StatusError, bad_request, too_large
from kedge.web.limits import ServerLimits

VALUE_SEPARATOR = "\n"
"""Separates the values of a repeated header that may contain commas."""
COMMA_HEADERS = ("impersonate-", "x-remote-")
"""Prefixes of such headers: they contain names of users and groups."""


_HTTP2_PREFACE: Final = "PRI"
"""The preface of HTTP/2 looks like a request with this method (RFC 9113, section 3.4)."""
_GET_LINE: Final = re.compile(rb"GET (/[!-~]*) HTTP/1\.1")
_LINE_END: Final = b"\r\n"
_BODY_FIELDS: Final = frozenset(("content-length", "transfer-encoding"))


class HeaderBlock(NamedTuple):
    """The header fields of a whole GET, as they were sent and as they were read."""

    sent: bytes
    """From the end of the request line to the end of the request."""
    headers: dict[str, str]


class RequestOwner(Protocol):
    """The connection of a reader."""

    closing: bool
    """Whether no further request will be answered."""

    def request_begun(self) -> None: ...

    def request_received(self, body: bytes, *, chunked: bool, is_last: bool) -> None:
        """Handle a complete request. `chunked` says whether the peer understands chunked
        responses, `is_last` whether it expects the end of the connection."""
        ...

    def refuse(self, error: StatusError) -> None: ...

    def refuse_http2(self) -> None: ...


class RequestReader:
    """The request that is being received.

    Clients send the same header fields with each request of a connection. So a GET whose fields
    are, byte for byte, those of an earlier one is read without the parser.
    """

    method: str
    url: bytes
    headers: dict[str, str]
    body: bytes | bytearray
    size: int
    """Received bytes of the body."""
    length: int
    """The Content-Length, 0 if there is none."""

    def __init__(
        self,
        owner: RequestOwner,
        limits: ServerLimits,
        comma_headers: tuple[str, ...] = COMMA_HEADERS,
    ) -> None:
        """`comma_headers` are the prefixes of headers whose values may contain commas."""
        self._owner = owner
        self._limits = limits
        self._comma_headers = comma_headers
        self._parser = httptools.HttpRequestParser(self)
        self._messages = 0
        """How many messages the parser has begun to read."""
        self._received = 0
        """Bytes received of the message."""
        self._is_between = True
        """Whether the parser has read the last message to its end, and nothing of another one."""
        self._known: HeaderBlock | None = None
        self._plain_headers: dict[str, str] | None = None
        """Those of the message that was just read, if it is a GET without a body that leaves the
        connection as it is."""
        self.in_head = False
        self.in_body = False
        self.reset()

    def reset(self) -> None:
        """Forget the request, once it is complete."""
        self.method = ""
        self.url = b""
        self.headers = {}
        self.body = b""
        self.size = 0
        self.length = 0
        self._head_size = 0

    def close(self) -> None:
        """Free the parser. It refers to this object: until the garbage collector finds the
        cycle, a closed connection would take 50 KB."""
        self._parser = None  # type: ignore[assignment]
        self._owner = None  # type: ignore[assignment]

    def feed(self, data: bytes) -> int:
        """Parse received bytes; returns how many of them belong to HTTP: fewer than all after a
        request for another protocol. The parser cannot be stopped in the middle."""
        was_between = self._is_between
        target = self.target_of_known(data)
        if target is not None:
            self._read_known(target)
            return -1
        message, used = self._messages, -1
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            used = upgrade.args[0]
        except httptools.HttpParserError as error:
            if self._parser.get_method().decode("latin-1") == _HTTP2_PREFACE:
                self._owner.refuse_http2()
            else:
                self._owner.refuse(bad_request(f"malformed HTTP request: {error}"))
        if message == self._messages:
            self._limit_message(len(data))
        elif was_between and self._messages == message + 1:
            self._learn(data)
        return used

    def target_of_known(self, data: bytes) -> bytes | None:
        """Return the target of received bytes that are a whole GET with known header fields, which
        need not be parsed; None if they are anything else."""
        known = self._known
        if known is None or not self._is_between or not data.endswith(known.sent):
            return None
        line = _GET_LINE.fullmatch(data, 0, len(data) - len(known.sent))
        if line is None or len(data) > self._limits.head_bytes:
            return None
        target = line[1]
        return target if len(target) <= self._limits.url_bytes else None

    @property
    def known_headers(self) -> dict[str, str]:
        """The known header fields."""
        assert self._known is not None
        return self._known.headers

    def _read_known(self, target: bytes) -> None:
        self.method, self.url, self.headers = "GET", target, self.known_headers
        self._owner.request_begun()
        self._owner.request_received(b"", chunked=True, is_last=False)

    def _learn(self, data: bytes) -> None:
        """Keep the header fields of a message that is all of these bytes, if it is a plain GET."""
        headers, self._plain_headers = self._plain_headers, None
        end = data.find(_LINE_END)
        if headers is None or not self._is_between or end < 0:
            return
        if _GET_LINE.fullmatch(data, 0, end) is not None:
            self._known = HeaderBlock(data[end:], headers)

    def _limit_message(self, size: int) -> None:
        """Limit the bytes that the parser itself may hold back of one unfinished message."""
        limits = self._limits
        self._received += size
        if self.in_head and self._received > limits.head_bytes:
            self._refuse_head()
        elif self._received > limits.head_bytes + limits.padding * limits.body_bytes:
            self._owner.refuse(too_large(limits.body_bytes))

    def _limit_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._limits.head_bytes:
            self._refuse_head()

    def _refuse_head(self) -> None:
        self._owner.refuse(StatusError(431, "BadRequest", "request header fields too large"))

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        self._messages += 1
        self._received = 0
        self._is_between = False
        self._plain_headers = None  # those of a message that came in parts were not learned
        self.in_head = True
        self._owner.request_begun()

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._limit_head(len(url))
        if len(self.url) > self._limits.url_bytes:
            message = "the URL of the request is too long"
            self._owner.refuse(StatusError(414, "BadRequest", message))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._limit_head(len(name) + len(value))
        if not self.in_head:
            return  # a trailer
        key = name.lower().decode("latin-1")
        text = value.decode("latin-1")
        headers = self.headers
        if key in headers:
            separator = VALUE_SEPARATOR if key.startswith(self._comma_headers) else ","
            text = f"{headers[key]}{separator}{text}"
        headers[key] = text
        if len(headers) > self._limits.headers:
            self._owner.refuse(StatusError(431, "BadRequest", "too many header fields"))

    def on_headers_complete(self) -> None:
        self.in_head = False
        self.in_body = True
        self.method = self._parser.get_method().decode("latin-1")
        if self._owner.closing:
            return
        if not self._parser.should_upgrade():
            # The parser decides whether what follows is another protocol. It reads `Connection`
            # more strictly than handlers do, which would otherwise switch, and the parser not.
            self.headers.pop("upgrade", None)
        length = self.headers.get("content-length")
        if length is not None and length.isdecimal():
            self.length = int(length)
            if self.length > self._limits.body_bytes:
                self._owner.refuse(too_large(self._limits.body_bytes))

    def on_body(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._limits.body_bytes:
            self._owner.refuse(too_large(self._limits.body_bytes))
        elif self._owner.closing:
            return
        elif not self.body:
            self.body = data
        else:
            # Not a list of pieces: pieces of one byte would take thirty times their content.
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += data

    def on_message_complete(self) -> None:
        self._is_between = True
        self.in_body = False
        if self._owner.closing:
            return
        parser = self._parser
        chunked = parser.get_http_version() != "1.0"
        is_last = not parser.should_keep_alive() or parser.should_upgrade() or not chunked
        if self.method == "GET" and not is_last and not _BODY_FIELDS & self.headers.keys():
            self._plain_headers = self.headers
        body = self.body if isinstance(self.body, bytes) else bytes(self.body)
        self._owner.request_received(body, chunked=chunked, is_last=is_last)


def origin_form(target: str) -> str:
    """Return `/path?query`, also of `http://host/path?query`, which proxies send."""
    return split_target(target)[1]


def split_target(target: str) -> tuple[str, str]:
    """Return the host of `http://host/path?query`, and `/path?query`; the host is empty for a
    target without one."""
    if target.startswith("/"):
        return "", target
    _, separator, rest = target.partition("://")
    host, _, path = rest.partition("/")
    return (host, f"/{path}") if separator else ("", target)
