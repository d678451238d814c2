from collections.abc import Callable
from ssl import create_default_context
from typing import Any

import pytest

from kedge.apiserver.several import relay as relay_module
from kedge.apiserver.several.membership import PeerServer
from kedge.apiserver.several.relay import RELAYED, FrameRelay
from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Unreachable
from kedge.metrics.frame_codec import PREFIX
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest, Response

Post = Callable[..., None]


class Members:
    """Servers that come and go."""

    def __init__(self) -> None:
        self.peers: list[PeerServer] = []

    def add(self, url: str) -> None:
        self.peers.append(PeerServer(url, url, "", 1, 0.0))


@pytest.fixture
def opened() -> list[str]:
    """The servers to which there are connections."""
    return []


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> list[tuple[str, Call]]:
    """The requests to other servers; one of them does not answer."""
    calls: list[tuple[str, Call]] = []

    class Transport:
        def __init__(self, url: str, **_: Any) -> None:
            HttpTransport(url)
            self.url = url
            opened.append(url)

        async def send(self, call: Call) -> None:
            if "dead" in self.url:
                raise Unreachable("nothing listens")
            if ".." in self.url:
                raise UnicodeError("label empty or too long")
            calls.append((self.url, call))

        async def close(self) -> None:
            opened.remove(self.url)

    monkeypatch.setattr(relay_module, "HttpTransport", Transport)
    return calls


def started(server: LocalServer, members: Members, status: int = 200) -> Post:
    """Return what sends a frame of a node to a server with a relay."""
    own = FrameRelay(members, create_default_context, server.clock)  # type: ignore[arg-type]
    server.start(own.run())
    handle = own.behind(lambda _: Response(status, b"{}"))

    def post(name: str, body: bytes, **headers: str) -> None:
        handle(HttpRequest("POST", f"{PREFIX}{name}", "", headers, body))

    return post


async def test_a_frame_reaches_the_other_servers_in_the_name_of_its_node(
    server: LocalServer, sent: list[tuple[str, Call]]
) -> None:
    members = Members()
    post = started(server, members)
    for url in ("https://dead:1", "https://one:1", "https://two:1"):
        members.add(url)
    await server.clock.advance(1)
    post("n", b"frame")
    await server.settle()
    assert [url for url, _ in sent] == ["https://one:1", "https://two:1"]
    call = sent[0][1]
    assert (call.path, call.body) == (f"{PREFIX}n", b"frame")
    assert call.headers["impersonate-user"] == "system:node:n"


async def test_a_frame_of_another_server_is_not_passed_on(
    server: LocalServer, sent: list[tuple[str, Call]]
) -> None:
    members = Members()
    post = started(server, members)
    members.add("https://one:1")
    await server.clock.advance(1)
    post("n", b"frame", **{RELAYED: "true"})
    await server.clock.advance(1)
    assert sent == []


async def test_a_frame_that_was_refused_is_not_passed_on(
    server: LocalServer, sent: list[tuple[str, Call]]
) -> None:
    members = Members()
    post = started(server, members, status=403)
    members.add("https://one:1")
    await server.clock.advance(1)
    post("n", b"frame")
    await server.clock.advance(1)
    assert sent == []


async def test_a_server_that_joins_gets_the_newest_frame_of_each_node(
    server: LocalServer, sent: list[tuple[str, Call]]
) -> None:
    members = Members()
    post = started(server, members)
    post("a", b"old")
    post("a", b"new")
    post("b", b"first")
    members.add("https://one:1")
    await server.clock.advance(1)
    assert sorted(call.body for _, call in sent) == [b"first", b"new"]


@pytest.mark.parametrize("url", ["nonsense", "https://", "https://one:x", "https://a..b:1"])
async def test_a_lease_without_the_address_of_a_server_does_not_end_the_relay(
    server: LocalServer, sent: list[tuple[str, Call]], url: str
) -> None:
    members = Members()
    post = started(server, members)
    members.add(url)
    members.add("https://one:1")
    await server.clock.advance(1)
    post("n", b"frame")
    await server.clock.advance(1)
    assert [url for url, _ in sent] == ["https://one:1"]


async def test_frames_are_not_sent_in_clear(
    server: LocalServer, sent: list[tuple[str, Call]]
) -> None:
    members = Members()
    post = started(server, members)
    members.add("http://one:1")
    await server.clock.advance(1)
    post("n", b"frame")
    await server.clock.advance(1)
    assert sent == []


async def test_the_newest_frames_of_the_nodes_that_reported_last_are_kept(
    server: LocalServer, sent: list[tuple[str, Call]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "MOST_NODES", 2)
    members = Members()
    post = started(server, members)
    for name in ("gone", "a", "gone", "a", "b"):
        post(name, name.encode())
    members.add("https://one:1")
    await server.clock.advance(1)
    assert [call.body for _, call in sent] == [b"a", b"b"]


async def test_connections_to_servers_that_are_gone_or_fail_are_closed(
    server: LocalServer, sent: list[tuple[str, Call]], opened: list[str]
) -> None:
    members = Members()
    post = started(server, members)
    members.add("https://one:1")
    members.add("https://dead:1")
    await server.clock.advance(1)
    post("n", b"frame")
    await server.clock.advance(1)
    assert opened == ["https://one:1"]
    members.peers.clear()
    await server.clock.advance(1)
    assert opened == []
