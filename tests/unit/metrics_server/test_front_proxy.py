"""What a cluster says of its front proxy, and what the proxy says of those who ask."""

import pytest

from kedge.apiserver.request import User
from kedge.machinery.errors import StatusError
from kedge.metrics_server.front_proxy import FrontProxy, FrontProxyError, read
from kedge.testing.clock import FakeClock
from kedge.web.message import HttpRequest

DATA = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
CERTIFICATE = {
    "subject": ((("commonName", "front-proxy-client"),),),
    "notAfter": "Jan  1 00:00:00 2040 GMT",
}


def ask(proxy: FrontProxy, **headers: str) -> User | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = HttpRequest("GET", "/apis", "", named, b"", CERTIFICATE)
    return proxy.user(request, FakeClock())


def test_all_that_is_said_of_a_user_is_taken_over() -> None:
    user = ask(
        read(DATA),
        x_remote_user="ann",
        x_remote_uid="42",
        x_remote_group="devs\nops,too",
        **{"x-remote-extra-example.com%2fscopes": "a\nb"},
    )
    assert user == User("ann", ("devs", "ops,too"), "42", (("example.com/scopes", ("a", "b")),))


def test_names_are_in_utf_8() -> None:
    user = ask(read(DATA), x_remote_user="björk".encode().decode("latin-1"))
    assert user is not None
    assert user.name == "björk"
    with pytest.raises(StatusError):
        ask(read(DATA), x_remote_user="\xff")


def test_a_proxy_that_names_nobody_leaves_it_open_who_asks() -> None:
    assert ask(read(DATA)) is None
    assert ask(read(DATA), x_remote_group="system:masters") is None


def test_a_cluster_without_a_front_proxy_has_none() -> None:
    assert read({"client-ca-file": "PEM"}).ca_pem == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"requestheader-group-headers": '["X-My-Group"]'},
        {"requestheader-username-headers": "X-Remote-User"},
    ],
)
def test_what_cannot_be_followed_safely_is_not(wrong: dict[str, str]) -> None:
    with pytest.raises(FrontProxyError):
        read(DATA | wrong)
