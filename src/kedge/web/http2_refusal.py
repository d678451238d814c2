"""The answer to clients that begin with HTTP/2: frames that they understand, with the reason.

An HTTP/1.1 response would be noise to them, and they would report a broken connection.
"""

from typing import Final

_SETTINGS: Final = 4
_GOAWAY: Final = 7
_HTTP_1_1_REQUIRED: Final = 13
_REASON: Final = b"this server speaks HTTP/1.1 only, not HTTP/2 or gRPC"


def _frame(kind: int, payload: bytes) -> bytes:
    """Return a frame of the connection itself: no flags, stream 0 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload


def _goaway(code: int, reason: bytes) -> bytes:
    """Return a frame that ends the connection; no stream was worked on."""
    return _frame(_GOAWAY, bytes(4) + code.to_bytes(4, "big") + reason)


HTTP2_REFUSAL: Final = _frame(_SETTINGS, b"") + _goaway(_HTTP_1_1_REQUIRED, _REASON)
"""The server's preface, and the end of the connection with the error HTTP_1_1_REQUIRED."""
