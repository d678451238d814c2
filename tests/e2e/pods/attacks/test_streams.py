"""Clients of exec and port-forward that send without reading, promise much, or come in crowds; and
attacks on the port of the node agent itself."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEBIBYTE = 1 << 20
LITTLE = 48 * MEBIBYTE
"""Bytes by which an agent or a server may grow for a peer that wants the worst."""
SHORT = 1.0
SHORT_TO_CONNECT = 3.0
SENDING_SECONDS = 8.0
PER_POD = 64
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
COMMANDS = "Sec-WebSocket-Protocol: v5.channel.k8s.io"
TUNNEL = "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io"


def agent_pid(port: int) -> int:
    """The process that listens on a port of this machine."""
    suffix = f":{port:04X}"
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(suffix) and fields[3] == "0A":
                inodes.add(f"socket:[{fields[9]}]")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) in inodes:
                return int(link.parts[2])
    raise AssertionError(f"nothing listens on port {port}")


@pytest.fixture(scope="session")
def agent(api: Any, node: Any, attacks: Any) -> Any:
    """The agent of the node."""
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
    host = addresses["InternalIP"]
    return attacks.target(host, port, api.ca_pem, api.token, agent_pid(port))


@pytest.fixture(scope="session")
def server(api: Any, attacks: Any) -> Any:
    """The API server."""
    parts = urlsplit(api.url)
    where = (parts.hostname or "", parts.port or 0)
    return attacks.target(*where, api.ca_pem, api.token, agent_pid(where[1]))


@pytest.fixture
def deaf(pods: Any) -> str:
    """A pod that does not read its input."""
    pods.create("deaf", "exec sleep 1000")
    pods.ready("deaf")
    return f"{pods.path}/deaf"


def entered(server: Any, attacks: Any, path: str, protocol: str = COMMANDS) -> ssl.SSLSocket:
    """A connection that was upgraded."""
    peer: ssl.SSLSocket = server.secure()
    peer.sendall(server.head(f"GET {path}", *UPGRADE, KEY, protocol, token=server.token))
    status, fields, body = attacks.read_head(peer)
    if status != 101:
        while len(body) < int(fields["content-length"]):
            body += peer.recv(4096)
        peer.close()
        raise PermissionError(status, body.decode())
    return peer


def sent(peer: ssl.SSLSocket, data: bytes, seconds: float) -> int:
    """How much the other side took of something that is sent again and again."""
    deadline, total = time.perf_counter() + seconds, 0
    peer.settimeout(2)
    with contextlib.suppress(OSError):
        while time.perf_counter() < deadline:
            peer.sendall(data)
            total += len(data)
    return total


@contextlib.contextmanager
def unharmed(agent: Any, server: Any, attacks: Any) -> Iterator[None]:
    """Check that the body costs the server and the agent little and delays no other client."""
    before = agent.memory, server.memory
    with (
        attacks.bystander(agent, "/healthz") as one,
        attacks.bystander(server, "/api/v1/namespaces/default") as other,
    ):
        yield
    for bystander in (one, other):
        assert bystander.failures == []
        assert max(bystander.kept) < SHORT
        assert max(bystander.fresh) < SHORT_TO_CONNECT
    assert agent.memory - before[0] < LITTLE
    assert server.memory - before[1] < LITTLE


def ping(payload: bytes) -> bytes:
    return bytes((0x89, 0x80 | len(payload))) + b"\0\0\0\0" + payload


def binary(payload: bytes) -> bytes:
    return struct.pack("!BBQ", 0x82, 0xFF, len(payload)) + b"\0\0\0\0" + payload


def test_pings_whose_answers_are_never_read_take_no_memory(
    agent: Any, server: Any, attacks: Any, deaf: str
) -> None:
    path = f"{deaf}/exec?command=sleep&command=100&stdin=1&stdout=1"
    flood = ping(b"x" * 125) * 500
    with unharmed(agent, server, attacks), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(entered(server, attacks, path)) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda peer: sent(peer, flood, SENDING_SECONDS), peers))


def test_pings_of_spdy_whose_answers_are_never_read_take_no_memory(
    agent: Any, server: Any, attacks: Any, deaf: str
) -> None:
    flood = binary(struct.pack("!HHII", 0x8003, 6, 4, 1) * 5000)
    with unharmed(agent, server, attacks), contextlib.ExitStack() as stack:
        path = f"{deaf}/portforward"
        peers = [stack.enter_context(entered(server, attacks, path, TUNNEL)) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda peer: sent(peer, flood, SENDING_SECONDS), peers))


def test_messages_that_never_end_take_no_memory(
    agent: Any, server: Any, attacks: Any, deaf: str
) -> None:
    path = f"{deaf}/exec?command=sleep&command=100&stdin=1&stdout=1"
    unfinished = binary(b"\0" + b"x" * 31 * MEBIBYTE)[:-1]
    with unharmed(agent, server, attacks), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(entered(server, attacks, path)) for _ in range(6)]
        for peer in peers:
            peer.settimeout(2)
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda peer: sent(peer, unfinished, 1), peers))


def test_sessions_of_a_pod_are_limited_and_released(
    agent: Any, server: Any, attacks: Any, deaf: str, eventually: Callable[..., Any]
) -> None:
    path = f"{deaf}/exec?command=sleep&command=100&stdin=1&stdout=1"
    refused: list[tuple[int, str]] = []
    with contextlib.ExitStack() as stack:
        for _ in range(PER_POD + 10):
            try:
                stack.enter_context(entered(server, attacks, path))
            except PermissionError as error:
                refused.append((error.errno or 0, error.strerror or ""))
    assert len(refused) == 10
    status, said = refused[0]
    assert status == 429
    assert "too many exec, attach and port-forward sessions" in said

    def welcome() -> bool:
        with contextlib.suppress(PermissionError), entered(server, attacks, path):
            return True
        return False

    eventually(welcome)


def test_a_session_ends_with_its_client_although_nobody_hears_what_it_said(
    server: Any, attacks: Any, deaf: str, pods: Any, eventually: Callable[..., Any]
) -> None:
    path = f"{deaf}/exec?command=sleep&command=4321&stdin=1&stdout=1"
    with entered(server, attacks, path) as peer:
        # More than the agent reads ahead, less than the kernel buffers: while a client's machine
        # still holds unsent data, its disconnect cannot be seen.
        peer.sendall(binary(b"\0" + b"x" * (700 << 10)))
        time.sleep(0.5)

    def processes() -> int:
        found = 0
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found += each.read_bytes() == b"sleep\x004321\0"
        return found

    assert processes() == 1
    eventually(lambda: processes() == 0, 40)


def test_pipelined_requests_to_an_agent_keep_nobody_waiting(
    agent: Any, server: Any, attacks: Any
) -> None:
    with unharmed(agent, server, attacks), agent.secure() as peer:
        sent(peer, agent.head("GET /pods") * 30_000, 3)


def test_connections_to_an_agent_that_say_nothing_lock_nobody_out(
    agent: Any, server: Any, attacks: Any
) -> None:
    def opened(connect: Callable[[], socket.socket]) -> list[socket.socket]:
        def attempt(_: int) -> socket.socket | None:
            try:
                return connect()
            except OSError:
                return None

        with ThreadPoolExecutor(16) as pool:
            return [peer for peer in pool.map(attempt, range(1100)) if peer is not None]

    for connect in (agent.connect, agent.secure):
        peers = opened(connect)
        try:
            with unharmed(agent, server, attacks):
                threading.Event().wait(1.5)
        finally:
            for peer in peers:
                peer.close()


def test_the_event_loop_of_an_agent_tells_of_its_pauses(agent: Any) -> None:
    with agent.secure() as peer:
        peer.sendall(agent.head("GET /metrics", "Connection: close", token=agent.token))
        page = b"".join(iter(lambda: peer.recv(1 << 16), b"")).decode()
    assert "\nkedge_event_loop_longest_pause_seconds " in page
    assert "# TYPE kedge_event_loop_pause_seconds histogram" in page
