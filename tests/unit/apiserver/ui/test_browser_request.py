"""How a request shows that it comes from the dashboard."""

import pytest

from kedge.apiserver.ui.browser_request import (
    BrowserProof,
    comes_from_here,
    cookie_name,
    proof_in,
    without_proof,
)
from kedge.web.message import HttpRequest

UPGRADE = {"connection": "Upgrade", "upgrade": "websocket"}


def request(method: str = "GET", **headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest(method, "/api", headers={"host": "127.0.0.1:6443", **named})


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:6443", "__Host-kedge-ui-6443"),
        ("[::1]:6443", "__Host-kedge-ui-6443"),
        ("kedge.example", "__Host-kedge-ui-443"),
        ("a:; Domain=evil", "__Host-kedge-ui-443"),
        ("a:123456789", "__Host-kedge-ui-443"),
    ],
)
def test_cookies_of_clusters_on_one_host_differ(host: str, name: str) -> None:
    assert cookie_name(HttpRequest("GET", "/", headers={"host": host})) == name


def test_secrets_are_in_the_cookie_and_in_the_header() -> None:
    cookie = "a=b; __Host-kedge-ui-6443=one; __Host-kedge-ui-1=other"
    found = proof_in(request(cookie=cookie, x_kedge_dashboard="two"))
    assert found == BrowserProof(["one"], "two")


def test_a_websocket_has_its_secret_in_a_subprotocol() -> None:
    protocols = {"sec-websocket-protocol": "events.kedge, dashboard.kedge.two"}
    found = proof_in(request(cookie="__Host-kedge-ui-6443=one", **UPGRADE, **protocols))
    assert found == BrowserProof(["one"], "two")
    assert proof_in(request(**protocols)).page_secret == ""


def test_secrets_are_not_passed_on() -> None:
    headers = {
        "accept": "*/*",
        "cookie": "a=b; __Host-kedge-ui-6443=one; c=d; __Host-kedge-ui-1=x",
        "x-kedge-dashboard": "two",
        "sec-websocket-protocol": "v5.channel.k8s.io, dashboard.kedge.two",
    }
    assert without_proof(headers) == {
        "accept": "*/*",
        "cookie": "a=b; c=d",
        "sec-websocket-protocol": "v5.channel.k8s.io",
    }
    assert without_proof({"cookie": "__Host-kedge-ui-6443=one"}) == {}


HERE = "https://127.0.0.1:6443"


@pytest.mark.parametrize(
    ("http", "expected"),
    [
        (request("GET"), True),
        (request("GET", sec_fetch_site="same-origin"), True),
        (request("GET", sec_fetch_site="same-site"), False),
        (request("GET", sec_fetch_site="cross-site"), False),
        (request("GET", sec_fetch_site="none"), False),
        (request("GET", origin="https://evil.example"), False),
        (request("POST"), False),
        (request("POST", origin=HERE), True),
        (request("POST", origin="http://127.0.0.1:6443"), False),
        (request("POST", origin="https://127.0.0.1:8443"), False),
        (request("POST", origin="null"), False),
        (request("POST", origin=HERE, sec_fetch_site="same-site"), False),
        (request("DELETE"), False),
        (request("GET", **UPGRADE), False),
        (request("GET", **UPGRADE, origin=HERE), True),
        (request("GET", **UPGRADE, origin="https://evil.example"), False),
    ],
)
def test_requests_of_other_origins_are_told_apart(http: HttpRequest, expected: bool) -> None:
    assert comes_from_here(http) is expected
