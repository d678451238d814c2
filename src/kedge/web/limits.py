"""Limits of an HTTP server on the size and duration of requests."""

import msgspec


class ServerLimits(msgspec.Struct, frozen=True):
    """Sizes in bytes, times in seconds."""

    head_bytes: int = 1 << 16
    url_bytes: int = 32 << 10
    headers: int = 200
    body_bytes: int = 3 << 20
    bodies_bytes: int = 64 << 20
    """Bytes of the bodies of all requests under way."""
    handshake_seconds: float = 5
    first_seconds: float = 10
    """Seconds until the first request and between requests while the caller is not
    authenticated."""
    head_seconds: float = 15
    body_seconds: float = 60
    idle_seconds: float = 180
    stall_seconds: float = 60
    """How long a peer may read nothing of its response."""
    linger_seconds: float = 2
    """How long further input of a refused peer is discarded, so that it can read the error."""
    takeover_seconds: float = 5
    """How long an upgraded connection may continue after its peer has disconnected."""
    linger_bytes: int = 16 << 20
    """Bytes of further input after which a refused peer is disconnected."""
    pipelined: int = 8
    padding: int = 8
    """How many times longer than its content a chunked body may be."""
