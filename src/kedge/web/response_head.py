"""The head of a response, and which responses are compressed."""

from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain

from kedge.web.message import JSON, HttpRequest, Response, header_line

GZIP_FROM = 128 << 10
"""Shorter responses are sent as they are."""
WHOLE_UP_TO = 1 << 20
"""Longer responses are sent in pieces: to encrypt a hundred megabytes takes a tenth of a second."""
BODILESS = (204, 304)
_JSON_LINE = header_line("Content-Type", JSON)
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}


def response_head(
    response: Response, length: int | None, *, date: str, close: bool, chunked: bool
) -> bytes:
    """Return the head of a response; `length` is None if it is not known yet."""
    lines = _STATUS_LINES.get(response.status) or f"HTTP/1.1 {response.status} Status\r\n"
    if response.content_type == JSON:
        lines += _JSON_LINE
    elif response.content_type:
        lines += header_line("Content-Type", response.content_type)
    lines += date
    for name, value in response.headers:
        lines += header_line(name, value)
    if close:
        lines += "Connection: close\r\n"
    if length is not None and response.status not in BODILESS:
        lines += f"Content-Length: {length}\r\n"
    elif length is None and chunked:
        lines += "Transfer-Encoding: chunked\r\n"
    return f"{lines}\r\n".encode("latin-1", "replace")


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
