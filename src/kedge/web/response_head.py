"""The head of a response, and which responses are compressed."""

from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain
from typing import Final

from kedge.web.message import HttpRequest, Response, header_line

GZIP_FROM = 128 << 10
"""Shorter responses are sent as they are."""
WHOLE_UP_TO = 1 << 20
"""Longer responses are sent in pieces: to encrypt a hundred megabytes takes a tenth of a second."""
BODILESS = (204, 304)
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}


_KNOWN: Final = 256
"""Beginnings of heads that are kept."""
_KNOWN_HEADERS: Final = 2
"""Header fields of a kept one. Responses with more differ from each other, for instance in the id
of their audit event."""


class ResponseHeads:
    """Makes the heads of responses. All but the length of the body is the same for most of a
    second, so it is kept until the Date changes."""

    def __init__(self) -> None:
        self.date = ""
        """The header field."""
        self._known: dict[tuple[object, ...], bytes] = {}

    def stamp(self, date: str) -> None:
        """Set the date of responses."""
        self.date = f"Date: {date}\r\n"
        self._known.clear()

    def of(self, response: Response, length: int | None, *, close: bool, chunked: bool) -> bytes:
        """Return the head of a response; `length` is None if it is not known yet."""
        headers = response.headers
        if length is None or close or len(headers) > _KNOWN_HEADERS or response.status in BODILESS:
            return self._beginning(response) + _ending(response, length, close, chunked)
        key = response.status, response.content_type, *headers
        beginning = self._known.get(key)
        if beginning is None:
            beginning = self._beginning(response)
            if len(self._known) < _KNOWN:
                self._known[key] = beginning
        return b"%bContent-Length: %d\r\n\r\n" % (beginning, length)

    def _beginning(self, response: Response) -> bytes:
        lines = _STATUS_LINES.get(response.status) or f"HTTP/1.1 {response.status} Status\r\n"
        if response.content_type:
            lines += header_line("Content-Type", response.content_type)
        lines += self.date
        for name, value in response.headers:
            lines += header_line(name, value)
        return lines.encode("latin-1", "replace")


def _ending(response: Response, length: int | None, close: bool, chunked: bool) -> bytes:
    lines = b"Connection: close\r\n" if close else b""
    if length is not None and response.status not in BODILESS:
        lines += b"Content-Length: %d\r\n" % length
    elif length is None and chunked:
        lines += b"Transfer-Encoding: chunked\r\n"
    return lines + b"\r\n"


def upgrade_head(response: Response, date: str) -> bytes:
    """Return the head of a response that changes the protocol of the connection."""
    lines = "".join(header_line(name, value) for name, value in response.headers)
    return f"{_STATUS_LINES[response.status]}{date}{lines}\r\n".encode("latin-1", "replace")


def is_short(response: Response, request: HttpRequest) -> bool:
    """Whether the body can be sent as it is, in one write."""
    if not isinstance(response.body, bytes) or response.take_over is not None:
        return False
    return fits_one_write(response.body, request)


def fits_one_write(body: bytes, request: HttpRequest) -> bool:
    """Whether a body is neither compressed nor too long to be sent at once."""
    if len(body) < GZIP_FROM or request.method == "HEAD":
        return True
    return len(body) <= WHOLE_UP_TO and not takes_gzip(request)


def takes_gzip(request: HttpRequest) -> bool:
    """Whether the client accepts gzip."""
    for offer in request.headers.get("accept-encoding", "").split(","):
        name, _, parameters = offer.replace(" ", "").partition(";")
        if name.lower() == "gzip":
            return parameters.rstrip("0") not in ("q=", "q=0.")
    return False


def split_first(
    body: bytes | Iterable[bytes],
) -> tuple[bytes, Iterable[bytes] | None]:
    """Return the first piece of a body, and all its pieces if there are several."""
    if isinstance(body, bytes):
        return body, None
    pieces = iter(body)
    first, second = next(pieces, b""), next(pieces, None)
    return first, None if second is None else chain((first, second), pieces)


def slices(body: bytes, size: int = 256 << 10) -> Iterable[bytes]:
    """Return a body in pieces."""
    view = memoryview(body)
    return (bytes(view[at : at + size]) for at in range(0, len(body), size))
