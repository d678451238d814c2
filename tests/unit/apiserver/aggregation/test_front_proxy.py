"""How extension servers learn the user."""

import json

import pytest

from kedge.apiserver.aggregation.front_proxy import TrustedProxies, configuration, user_headers
from kedge.apiserver.request import User
from kedge.machinery.errors import StatusError
from kedge.metrics_server import front_proxy as extension

OURS = TrustedProxies(b"proxy", ("front-proxy-client",))


def test_the_user_is_named_in_headers() -> None:
    user = User("ann", ("a", "b"), "u-1", (("example.com/scopes", ("x", "y")),))
    assert user_headers(user) == [
        ("x-remote-user", "ann"),
        ("x-remote-uid", "u-1"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-example.com%2Fscopes", "x"),
        ("x-remote-extra-example.com%2Fscopes", "y"),
    ]


def test_names_are_sent_as_utf_8() -> None:
    [(_, value)] = user_headers(User("zoë"))
    assert value.encode("latin-1").decode() == "zoë"


@pytest.mark.parametrize("name", ["ann\r\nx-remote-user: eve", " ann", "ann\t", "a\0b", "a\x7f"])
def test_a_name_that_a_header_would_change_is_refused(name: str) -> None:
    with pytest.raises(StatusError, match="no header can pass on"):
        user_headers(User(name))
    with pytest.raises(StatusError):
        user_headers(User("ann", (name,)))


def test_an_extension_server_understands_the_configuration() -> None:
    data = configuration(b"clients", OURS)
    found = extension.read(data)
    assert (data["client-ca-file"], found.ca_pem) == ("clients", "proxy")
    assert found.allowed == {"front-proxy-client"}
    assert found.headers.uids == ("x-remote-uid",)
    assert json.loads(data["requestheader-extra-headers-prefix"]) == ["X-Remote-Extra-"]


def test_extension_servers_believe_proxies_in_front_too() -> None:
    others = TrustedProxies(b"others", ("p",), ("X-Name", "x-remote-user"), groups=("X-Group",))
    data = configuration(b"clients", OURS.joined(others))
    assert data["requestheader-client-ca-file"] == "proxy\nothers"
    assert json.loads(data["requestheader-allowed-names"]) == ["p", "front-proxy-client"]
    assert json.loads(data["requestheader-username-headers"]) == ["X-Name", "X-Remote-User"]
    assert json.loads(data["requestheader-group-headers"]) == ["X-Group", "X-Remote-Group"]
    assert extension.read(data).headers.groups == ("x-remote-group",)


def test_proxies_of_any_name_leave_the_list_of_names_empty() -> None:
    assert OURS.joined(TrustedProxies(b"others", ())).allowed_names == ()
