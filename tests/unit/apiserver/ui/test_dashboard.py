"""Signing in, and requests of browsers, through the whole server."""

from collections.abc import AsyncIterator, Mapping
from http.cookies import SimpleCookie
from pathlib import Path

import msgspec
import pytest

from kedge.apiserver.audit import AuditLog
from kedge.apiserver.identities import OutsideIdentities
from kedge.apiserver.ui.sessions import IDLE_SECONDS
from kedge.testing.local_server import TOKEN, LocalAnswer, LocalServer

HOST = "127.0.0.1:6443"
HERE = f"https://{HOST}"
PODS = "/api/v1/namespaces/default/pods"
COOKIE = "__Host-kedge-ui-6443"


class SignedIn:
    """A browser with the secrets of a session."""

    def __init__(self, server: LocalServer, answer: LocalAnswer) -> None:
        self.server = server
        self.secret = answer.document["pageSecret"]
        self.cookie = SimpleCookie(answer.headers["Set-Cookie"])[COOKIE].value
        self.headers = {
            "host": HOST,
            "cookie": f"{COOKIE}={self.cookie}",
            "x-kedge-dashboard": self.secret,
            "origin": HERE,
            "sec-fetch-site": "same-origin",
        }

    async def call(self, method: str, path: str, body: object = None, **changes: str | None) -> int:
        headers = self.headers | {key.replace("_", "-"): each for key, each in changes.items()}
        kept = {name: value for name, value in headers.items() if value is not None}
        return (await self.server.call(method, path, body, token=None, headers=kept)).status


async def code_for(server: LocalServer, token: str = TOKEN) -> str:
    answer = await server.call("POST", "/ui/codes", token=token)
    assert answer.status == 201
    assert answer.headers["Cache-Control"] == "no-store"
    return str(answer.document["code"])


async def exchange(
    server: LocalServer, code: str, headers: Mapping[str, str] | None = None
) -> LocalAnswer:
    sent = {"host": HOST, "origin": HERE, **(headers or {})}
    return await server.call("POST", "/ui/session", {"code": code}, token=None, headers=sent)


async def sign_in(server: LocalServer, token: str = TOKEN) -> SignedIn:
    return SignedIn(server, await exchange(server, await code_for(server, token)))


async def account_token(server: LocalServer, name: str) -> str:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await server.call("POST", accounts, {"metadata": {"name": name}})
    answer = await server.call("POST", f"{accounts}/{name}/token", {"spec": {}})
    return str(answer.document["status"]["token"])


async def test_a_code_becomes_a_session_once(server: LocalServer) -> None:
    code = await code_for(server)
    answer = await exchange(server, code)
    assert answer.status == 201
    assert answer.document["user"] == "kubernetes-admin"
    assert (await exchange(server, code)).status == 401
    cookie = answer.headers["Set-Cookie"]
    for attribute in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=28800"):
        assert attribute in cookie
    assert "Domain" not in cookie
    assert SignedIn(server, answer).secret not in cookie


async def test_the_browser_acts_as_the_user(server: LocalServer) -> None:
    browser = await sign_in(server)
    assert await browser.call("GET", PODS) == 200
    made = {"metadata": {"name": "team"}}
    assert await browser.call("POST", "/api/v1/namespaces", made) == 201
    guest = await sign_in(server, await account_token(server, "guest"))
    assert await guest.call("GET", PODS) == 403
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = await server.call("POST", review, {}, token=None, headers=guest.headers)
    user = answer.document["status"]["userInfo"]["username"]
    assert user == "system:serviceaccount:default:guest"


async def test_a_cookie_alone_gives_nothing(server: LocalServer) -> None:
    browser = await sign_in(server)
    assert await browser.call("GET", PODS, x_kedge_dashboard=None) == 403
    assert await browser.call("GET", PODS, x_kedge_dashboard="wrong") == 401
    assert await browser.call("GET", PODS, cookie=None) == 401
    assert await browser.call("GET", PODS, cookie=f"{COOKIE}=wrong") == 401


async def test_other_credentials_are_as_they_were(server: LocalServer) -> None:
    """A client with a token is who it was, also with the cookie of a session."""
    browser = await sign_in(server, await account_token(server, "guest"))
    headers = {"host": HOST, "cookie": browser.headers["cookie"]}
    assert (await server.call("GET", PODS, headers=headers)).status == 200


@pytest.mark.parametrize(
    "change",
    [
        {"origin": "https://evil.example"},
        {"origin": "https://127.0.0.1:8080"},
        {"origin": "null"},
        {"origin": None},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
async def test_writes_of_other_pages_are_refused(
    server: LocalServer, change: dict[str, str | None]
) -> None:
    browser = await sign_in(server)
    made = {"metadata": {"name": "team"}}
    assert await browser.call("POST", "/api/v1/namespaces", made, **change) == 401
    assert await browser.call("DELETE", "/ui/session", **change) == 401
    assert await browser.call("POST", "/api/v1/namespaces", made) == 201


async def test_only_a_page_of_this_server_signs_in(server: LocalServer) -> None:
    code = await code_for(server)
    assert (await exchange(server, code, {"origin": "https://evil.example"})).status == 403
    assert (await exchange(server, code)).status == 201


async def test_websockets_have_the_secret_in_a_subprotocol(server: LocalServer) -> None:
    browser = await sign_in(server)
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "user-agent": "Mozilla/5.0",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-protocol": f"events.kedge, dashboard.kedge.{browser.secret}",
    }
    watch = f"{PODS}?watch=true"
    headers = browser.headers | upgrade
    del headers["x-kedge-dashboard"]
    answer = await server.call("GET", watch, token=None, headers=headers)
    assert answer.status == 101
    assert answer.headers["Sec-WebSocket-Protocol"] == "events.kedge"
    other = headers | {"origin": "https://evil.example"}
    assert (await server.call("GET", watch, token=None, headers=other)).status == 401
    wrong = headers | {"sec-websocket-protocol": "events.kedge, dashboard.kedge.wrong"}
    assert (await server.call("GET", watch, token=None, headers=wrong)).status == 401


async def test_signing_out_ends_the_session(server: LocalServer) -> None:
    browser = await sign_in(server)
    assert await browser.call("GET", "/ui/session") == 200
    answer = await server.call("DELETE", "/ui/session", token=None, headers=browser.headers)
    assert answer.status == 200
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert await browser.call("GET", "/ui/session") == 401
    assert await browser.call("GET", PODS) == 401


async def test_an_idle_session_ends(server: LocalServer) -> None:
    browser = await sign_in(server)
    await server.clock.advance(IDLE_SECONDS)
    assert await browser.call("GET", PODS) == 401


async def test_a_session_ends_with_its_credential(server: LocalServer) -> None:
    guest = await sign_in(server, await account_token(server, "guest"))
    assert await guest.call("GET", PODS) == 403
    await server.call("DELETE", "/api/v1/namespaces/default/serviceaccounts/guest")
    await server.settle()
    assert await guest.call("GET", PODS) == 401


async def test_codes_need_credentials(server: LocalServer) -> None:
    assert (await server.call("POST", "/ui/codes", token=None)).status == 401
    assert (await server.call("POST", "/ui/codes", token="wrong")).status == 401
    assert (await server.call("GET", "/ui/codes")).status == 405
    acting = {"impersonate-user": "anna"}
    assert (await server.call("POST", "/ui/codes", headers=acting)).status == 403
    browser = await sign_in(server)
    # A session cannot make another one, and so not live for ever.
    assert await browser.call("POST", "/ui/codes") == 401


@pytest.mark.parametrize("body", [b"", b"{}", b'{"code":1}', b"[]", b"x", b'{"code":"\\ud800"}'])
async def test_a_malformed_sign_in_is_refused(server: LocalServer, body: bytes) -> None:
    headers = {"host": HOST, "origin": HERE}
    answer = await server.call("POST", "/ui/session", body, token=None, headers=headers)
    assert answer.status in (400, 401)


@pytest.mark.parametrize(
    "extra", [{"content-length": "1025"}, {"transfer-encoding": "chunked"}, {"content-length": "x"}]
)
async def test_long_bodies_are_not_read(server: LocalServer, extra: dict[str, str]) -> None:
    answer = await server.call("POST", "/ui/session", token=None, headers=extra)
    assert answer.status == 413


async def test_files_are_public(server: LocalServer) -> None:
    assert (await server.call("GET", "/ui", token=None)).headers["Location"] == "/ui/"
    page = await server.call("GET", "/ui/", token=None)
    assert page.status == 200
    assert "Content-Security-Policy" in page.headers
    assert (await server.call("HEAD", "/ui/main.js", token=None)).status == 200
    assert (await server.call("GET", "/ui/none", token=None)).status == 404
    assert (await server.call("PUT", "/ui/main.js", token=None)).status == 405


class Refusing:
    """Nobody is anonymous."""

    def __call__(self, path: str) -> bool:
        return False


@pytest.fixture
async def closed_server() -> AsyncIterator[LocalServer]:
    outside = OutsideIdentities(anonymous=Refusing())
    async with LocalServer.running(outside=outside) as running:
        yield running


async def test_signing_in_works_without_anonymous_requests(closed_server: LocalServer) -> None:
    assert (await closed_server.call("GET", "/version", token=None)).status == 401
    assert (await closed_server.call("GET", "/ui/", token=None)).status == 200
    assert await (await sign_in(closed_server)).call("GET", PODS) == 200


async def test_the_audit_log_names_the_user_and_no_secret(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "log")
    async with LocalServer.running(audit_log=log) as server:
        code = await code_for(server)
        browser = SignedIn(server, await exchange(server, code))
        assert await browser.call("GET", PODS) == 200
    log.close()
    text = (tmp_path / "log").read_text()
    *_, event = map(msgspec.json.decode, text.splitlines())
    assert event["user"]["username"] == "kubernetes-admin"
    assert event["requestURI"] == PODS
    assert [each for each in (code, browser.secret, browser.cookie) if each in text] == []
