"""What is passed on between a client and another server."""

import errno
import ssl

import pytest

from kedge.client.transport import Unreachable
from kedge.web.exchange import ServerAddress
from kedge.web.message import HttpRequest
from kedge.web.relay import dial_failure, forwarded_for, passed_headers

HEADERS = {
    "host": "api",
    "accept": "*/*",
    "connection": "keep-alive, X-Hop",
    "x-hop": "1",
    "te": "trailers",
    "content-length": "3",
    "expect": "100-continue",
}


def test_headers_for_the_next_hop_only_are_not_passed_on() -> None:
    assert passed_headers(HEADERS, upgrading=False) == {"accept": "*/*"}


def test_the_wish_for_another_protocol_is_passed_on() -> None:
    headers = {"connection": "Upgrade, X-Hop", "upgrade": "websocket", "x-hop": "1", "x": "2"}
    passed = {"connection": "Upgrade", "upgrade": "websocket", "x": "2"}
    assert passed_headers(headers, upgrading=True) == passed


@pytest.mark.parametrize(("before", "after"), [("", "1.2.3.4"), ("9.9.9.9", "9.9.9.9, 1.2.3.4")])
def test_the_peer_is_appended_to_the_proxies(before: str, after: str) -> None:
    headers = {"x-forwarded-for": before} if before else {}
    http = HttpRequest("GET", "/", headers=headers, peer="1.2.3.4")
    assert forwarded_for(http) == {"x-forwarded-for": after}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "connect: connection refused"),
        (OSError(errno.EHOSTUNREACH, "x"), "connect: no route to host"),
        (TimeoutError(), "i/o timeout"),
    ],
)
def test_failures_are_named_as_in_kubernetes(error: Exception, text: str) -> None:
    assert dial_failure(ServerAddress("1.2.3.4", 80), error) == f"dial tcp 1.2.3.4:80: {text}"


@pytest.mark.parametrize("error", [Unreachable("gone"), ssl.SSLError(1, "gone")])
def test_other_failures_say_what_happened(error: Exception) -> None:
    assert dial_failure(ServerAddress("::1", 80), error).startswith("[::1]:80: ")
