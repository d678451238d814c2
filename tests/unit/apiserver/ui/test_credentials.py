"""What a session keeps of the request that asked for its code."""

from kedge.apiserver.ui.credentials import Credentials
from kedge.web.message import HttpRequest

CERTIFICATE = {"subject": "anna"}


def test_only_credentials_are_kept() -> None:
    headers = {"authorization": "Bearer a", "user-agent": "kedge", "x-remote-user": "root"}
    found = Credentials.of(HttpRequest("POST", "/ui/codes", headers=headers))
    assert found == Credentials({"authorization": "Bearer a"}, None)


def test_headers_of_a_proxy_are_kept_with_its_certificate() -> None:
    headers = {"x-remote-user": "anna", "x-remote-extra-team": "a", "accept": "*/*"}
    http = HttpRequest("POST", "/ui/codes", headers=headers, peer_certificate=CERTIFICATE)
    kept = {"x-remote-user": "anna", "x-remote-extra-team": "a"}
    prefixes = ("x-remote-user", "x-remote-extra-")
    assert Credentials.of(http, prefixes) == Credentials(kept, CERTIFICATE, prefixes)


def test_they_replace_those_of_the_browser() -> None:
    http = HttpRequest("GET", "/api", headers={}, peer_certificate=CERTIFICATE)
    given = {"accept": "*/*", "authorization": "Bearer b"}
    Credentials({"authorization": "Bearer a"}, None).give_to(http, given)
    assert http.headers == {"accept": "*/*", "authorization": "Bearer a"}
    assert http.peer_certificate is None


def test_a_browser_names_no_groups_with_the_certificate_of_a_proxy() -> None:
    kept = Credentials({"x-remote-user": "anna"}, CERTIFICATE, ("x-remote-user", "x-remote-group"))
    http = HttpRequest("GET", "/api", headers={})
    kept.give_to(http, {"accept": "*/*", "x-remote-group": "system:masters"})
    assert http.headers == {"accept": "*/*", "x-remote-user": "anna"}
