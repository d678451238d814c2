"""How extension servers learn the user."""

import json

import pytest

from kedge.apiserver.aggregation.front_proxy import configuration, user_headers
from kedge.apiserver.request import User
from kedge.machinery.errors import StatusError
from kedge.metrics_server import front_proxy as extension


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
    data = configuration(b"clients", b"proxy")
    found = extension.read(data)
    assert (data["client-ca-file"], found.ca_pem) == ("clients", "proxy")
    assert found.allowed == ("front-proxy-client",)
    assert found.uid_headers == ("x-remote-uid",)
    assert json.loads(data["requestheader-extra-headers-prefix"]) == ["X-Remote-Extra-"]
