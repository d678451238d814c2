"""Users whom authenticating proxies name, and clients who would like to be such a proxy."""

from typing import Any

import pytest

from kedge.apiserver.authentication.certificates import ClientCertificates
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.authentication.request_headers import (
    PROXY,
    HeaderProxies,
    RequestHeaders,
    extra_key,
)
from kedge.apiserver.request import User
from kedge.testing.clock import FakeClock
from kedge.web.connection_limits import ConnectionCaller
from kedge.web.message import HttpRequest

HEADERS = RequestHeaders(uids=("x-remote-uid",))
ANN = {"x-remote-user": "ann"}


def certificate(name: str, authority: str, **more: Any) -> dict[str, Any]:
    subject = ((("organizationName", "proxies"),), (("commonName", name),))
    ends = "Jan  1 00:00:00 2040 GMT"
    return {"subject": subject, "notAfter": ends, "authority": authority, **more}


def proxies(*allowed: str) -> HeaderProxies:
    clock = FakeClock()
    own = ClientCertificates(clock)
    return HeaderProxies(
        HEADERS,
        frozenset({"proxy-ca"}),
        frozenset(allowed),
        own,
        frozenset({"cluster-ca"}),
        clock=clock,
    )


def asking(headers: dict[str, str], shown: dict[str, Any] | None) -> HttpRequest:
    return HttpRequest("GET", "/api", headers=headers, peer_certificate=shown)


def test_everything_that_is_said_of_a_user_counts() -> None:
    headers = {
        "x-remote-user": "ann",
        "x-remote-uid": "42",
        "x-remote-group": "devs\n\nops,too",
        "x-remote-extra-example.com%2fscopes": "a\nb",
        "x-remote-extra-empty": "",
        "x-other": "c",
    }
    extra = (("example.com/scopes", ("a", "b")), ("empty", ("",)))
    assert HEADERS.user(headers) == User("ann", ("devs", "ops,too"), "42", extra)


def test_the_first_header_that_is_not_empty_names_the_user() -> None:
    headers = RequestHeaders(users=("x-a", "x-b"))
    assert headers.user({"x-a": "", "x-b": "bob\ncarl"}) == User("bob")
    assert headers.user({"x-a": "\nann", "x-b": "bob"}) == User("bob")
    assert headers.user({"x-a": ""}) is None


def test_extra_fields_of_several_prefixes_are_joined() -> None:
    headers = RequestHeaders(extra_prefixes=("x-b-", "x-a-"))
    found = headers.user({**ANN, "x-a-k": "1", "x-b-k": "2", "x-b-%6b": "3"})
    assert found is not None
    assert found.extra == (("k", ("2", "3", "1")),)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("plain", "plain"),
        ("example.com%2fscopes", "example.com/scopes"),
        ("a%20b%25", "a b%"),
        ("%c3%a9", "é"),
        ("%zz", "%zz"),
        ("a%2fb%2", "a%2fb%2"),
        ("a+b", "a+b"),
    ],
)
def test_keys_of_extra_fields_are_unescaped(text: str, key: str) -> None:
    assert extra_key(text) == key


@pytest.mark.parametrize(
    "headers", [{"x-remote-user": "\xff"}, {**ANN, "x-remote-extra-%ff": "1"}], ids=str
)
def test_text_that_is_not_utf_8_names_nobody(headers: dict[str, str]) -> None:
    with pytest.raises(CredentialRefused, match="not UTF-8"):
        HEADERS.user(headers)


def test_a_proxy_is_believed() -> None:
    shown = certificate("front-proxy", "proxy-ca")
    assert proxies("front-proxy").user(asking(ANN, shown)) == User("ann")
    assert proxies().user(asking(ANN, shown)) == User("ann")


def test_the_connection_counts_for_the_proxy() -> None:
    callers: list[ConnectionCaller] = []
    http = asking(ANN, certificate("front-proxy", "proxy-ca"))
    http.on_identified = callers.append
    assert proxies().user(http) == User("ann")
    http.identified(User("ann"))
    assert callers == [PROXY]


def test_headers_of_other_clients_are_not_believed() -> None:
    own = certificate("jane", "cluster-ca")
    assert proxies().user(asking(ANN, None)) is None
    assert proxies().user(asking(ANN, own)) == User("jane", ("proxies",))


def test_the_name_of_a_proxy_in_a_certificate_of_the_cluster_is_of_no_use() -> None:
    own = certificate("front-proxy", "cluster-ca")
    found = proxies("front-proxy").user(asking(ANN, own))
    assert found == User("front-proxy", ("proxies",))


@pytest.mark.parametrize(
    ("shown", "headers", "why"),
    [
        (certificate("eve", "proxy-ca"), ANN, "allowed list"),
        (certificate("", "proxy-ca"), ANN, "allowed list"),
        (certificate("front-proxy", "proxy-ca"), {}, "unknown authority"),
        (certificate("front-proxy", "proxy-ca"), {"x-remote-group": "a"}, "unknown authority"),
        (certificate("front-proxy", ""), ANN, "unknown authority"),
        (certificate("front-proxy", "third-ca"), ANN, "unknown authority"),
        (
            certificate("front-proxy", "proxy-ca") | {"notAfter": "Jan  1 00:00:00 2001 GMT"},
            ANN,
            "expired",
        ),
        (
            certificate("eve", "proxy-ca")
            | {"subject": ((("commonName", "front-proxy"),), (("commonName", "eve"),))},
            ANN,
            "allowed list",
        ),
    ],
)
def test_a_certificate_that_is_not_a_proxys_names_nobody(
    shown: dict[str, Any], headers: dict[str, str], why: str
) -> None:
    with pytest.raises(CredentialRefused, match=why):
        proxies("front-proxy").user(asking(headers, shown))


def test_a_certificate_of_the_proxies_authority_is_no_ordinary_one() -> None:
    masters = ((("organizationName", "system:masters"),), (("commonName", "admin"),))
    shown = certificate("admin", "proxy-ca", sha256="1") | {"subject": masters}
    with pytest.raises(CredentialRefused):
        proxies("front-proxy").user(asking({}, shown))


def test_an_authority_of_both_makes_proxies_and_users() -> None:
    clock = FakeClock()
    both = frozenset({"ca"})
    sorts = HeaderProxies(
        HEADERS, both, frozenset({"front-proxy"}), ClientCertificates(clock), both, clock=clock
    )
    assert sorts.user(asking(ANN, certificate("front-proxy", "ca"))) == User("ann")
    assert sorts.user(asking(ANN, certificate("jane", "ca"))) == User("jane", ("proxies",))


def test_no_server_behind_gets_the_headers() -> None:
    headers = {
        "accept": "*/*",
        "x-remote-users": "kept",
        "x-remote-user": "ann",
        "x-remote-uid": "1",
        "x-remote-group": "a",
        "x-remote-extra-a": "b",
    }
    assert HEADERS.stripped(headers) == {"accept": "*/*", "x-remote-users": "kept"}
