"""The bytes of an HTTP request."""

from collections.abc import Iterable
from typing import Final

from kedge.client.transport import Unreachable

_BODY_METHODS: Final = ("POST", "PUT", "PATCH")


def encode_request(
    method: str, target: str, authority: str, headers: Iterable[tuple[str, str]], body: bytes
) -> bytes:
    """Return the bytes of exactly one request; raises Unreachable if a value has a line end.

    Values come from untrusted sources: a registry's redirect or token, a webhook's path. A line
    end in one of them would start another header or another request.
    """
    lines = [f"{method} {target} HTTP/1.1", f"host: {authority}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method in _BODY_METHODS:
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
        raise Unreachable(f"refused to ask {authority}: a line of the request has two")
    return f"{head}\r\n\r\n".encode("latin-1") + body
