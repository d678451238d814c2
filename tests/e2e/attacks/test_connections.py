"""Peers that use up a server's connections, memory or time, with and without credentials."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PATH = "/api/v1/namespaces/default"
SMALL = "POST /api/v1/namespaces/default/configmaps"
MEBIBYTE = 1 << 20
BODY = 3 * MEBIBYTE - 1000
LITTLE = 48 * MEBIBYTE
SHORT = 1.0
"""Longest wait, in seconds, for a get on an existing connection."""
SHORT_TO_CONNECT = 3.0
"""Seconds for a get on a new connection, two processes and a handshake on a busy machine."""
BEGUN_HANDSHAKE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
MANY = 1100
"""Connections, more than that."""


def assert_served(bystander: Any) -> None:
    assert bystander.failures == []
    assert len(bystander.kept) > 3
    assert max(bystander.kept) < SHORT
    assert max(bystander.fresh) < SHORT_TO_CONNECT


def flood(peer: ssl.SSLSocket, data: bytes, answers: int, over: threading.Event) -> int:
    """Send all at once, and read as it comes; returns how many answers came."""
    sending = threading.Thread(target=_send, args=(peer, data), daemon=True)
    sending.start()
    found, rest = 0, b""
    with contextlib.suppress(OSError):
        while found < answers and not over.is_set() and (piece := peer.recv(1 << 16)):
            rest += piece
            found += rest.count(b"HTTP/1.1 ")
            rest = rest[-8:]
    return found


def _send(peer: ssl.SSLSocket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        peer.sendall(data)


def test_pipelined_requests_on_one_connection_do_not_delay_others(
    target: Any, attacks: Any
) -> None:
    request = target.head("GET /api")
    over = threading.Event()
    with attacks.bystander(target, PATH) as bystander, target.secure() as peer:
        with ThreadPoolExecutor(1) as pool:
            attack = pool.submit(flood, peer, request * 30_000, 30_000, over)
            with contextlib.suppress(TimeoutError):
                attack.result(40)
            over.set()
            peer.close()
        assert_served(bystander)
    assert attack.result() == 30_000


def test_pipelined_requests_whose_answers_are_never_read_keep_nobody_waiting(
    target: Any, attacks: Any
) -> None:
    before = target.memory
    request = target.head("GET /api")
    with attacks.bystander(target, PATH) as bystander, contextlib.ExitStack() as stack:
        for _ in range(20):
            peer = stack.enter_context(target.secure())
            peer.settimeout(0.2)
            with contextlib.suppress(OSError):
                peer.sendall(request * 20_000)
    assert_served(bystander)
    assert target.memory - before < LITTLE


def opened(connect: Callable[[], socket.socket]) -> Iterable[socket.socket]:
    """As many connections as were let in."""

    def attempt(_: int) -> socket.socket | None:
        try:
            return connect()
        except OSError:
            return None

    with ThreadPoolExecutor(16) as pool:
        return [peer for peer in pool.map(attempt, range(MANY)) if peer is not None]


def close(peers: Iterable[socket.socket]) -> None:
    for peer in peers:
        peer.close()


def test_connections_without_a_handshake_do_not_lock_out_others(target: Any, attacks: Any) -> None:
    peers = opened(target.connect)
    try:
        with attacks.bystander(target, PATH) as bystander:
            threading.Event().wait(2)
        assert_served(bystander)
    finally:
        close(peers)


def test_handshakes_that_break_off_leave_no_memory_behind(target: Any) -> None:
    before = target.memory
    for _ in range(4):
        peers = opened(target.connect)
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.sendall(BEGUN_HANDSHAKE)
        threading.Event().wait(1.5)  # until the first have made room for others
        close(peers)
    # TLS has 140 KB for each of the 512 that may be under way.
    assert target.memory - before < 180 * MEBIBYTE


def test_idle_connections_do_not_lock_out_others(target: Any, attacks: Any) -> None:
    peers = opened(target.secure)
    try:
        with attacks.bystander(target, PATH) as bystander:
            threading.Event().wait(2)
        assert_served(bystander)
    finally:
        close(peers)


def test_a_tenant_cannot_use_up_the_connections_of_others(target: Any, attacks: Any) -> None:
    account = f"POST {PATH}/serviceaccounts/default/token"
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}).encode()
    fields = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
    with target.secure() as peer:
        peer.sendall(target.head(account, *fields, token=target.token) + body)
        data = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    token = json.loads(data.partition(b"\r\n\r\n")[2])["status"]["token"]

    def known() -> socket.socket:
        connection = target.secure()
        connection.sendall(target.head("GET /api", token=token))
        attacks.read_head(connection)
        return connection  # type: ignore[no-any-return]

    peers = opened(known)
    try:
        with attacks.bystander(target, PATH) as bystander:
            threading.Event().wait(2)
        assert_served(bystander)
    finally:
        close(peers)


def started(target: Any, token: str, size: int) -> ssl.SSLSocket:
    """A request with so many bytes of its body sent."""
    fields = ("Content-Type: application/json", f"Content-Length: {BODY}")
    peer: ssl.SSLSocket = target.secure()
    peer.settimeout(5)
    with contextlib.suppress(OSError):
        peer.sendall(target.head(SMALL, *fields, token=token) + b" " * size)
    return peer


def test_who_may_not_write_is_told_before_the_body_is_read(target: Any, attacks: Any) -> None:
    for token, expected in (("", 403), ("wrong", 401)):
        with started(target, token, 16 << 10) as peer:
            status, fields, _ = attacks.read_head(peer)
        assert (status, fields["connection"]) == (expected, "close")


def test_who_expects_to_continue_is_told_first_whether_they_may(target: Any, attacks: Any) -> None:
    fields = ("Expect: 100-continue", "Content-Type: application/json", "Content-Length: 2")
    for token, expected in (("", 403), ("wrong", 401), (target.token, 100)):
        with target.secure() as peer:
            peer.sendall(target.head(SMALL, *fields, token=token))
            assert attacks.read_head(peer)[0] == expected


def test_bodies_of_strangers_take_no_memory(target: Any, attacks: Any) -> None:
    before = target.memory
    with attacks.bystander(target, PATH) as bystander, contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(started(target, "", BODY - 1))
    assert_served(bystander)
    assert target.memory - before < LITTLE


def test_unfinished_bodies_share_a_budget_that_keeps_others_writing(
    target: Any, attacks: Any
) -> None:
    before = target.memory
    with attacks.bystander(target, PATH) as bystander, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(started(target, target.token, BODY - 1)) for _ in range(60)]
        status, fields, _ = attacks.read_head(peers[0])
        assert (status, fields["retry-after"]) == (429, "1")
        last = peers[-1]
        last.sendall(b" ")
        assert attacks.read_head(last)[0] == 400  # nothing but spaces, but read to its end
    assert_served(bystander)
    assert target.memory - before < 64 * MEBIBYTE + LITTLE


def test_the_server_reports_pauses_of_its_event_loop(target: Any) -> None:
    with target.secure() as peer:
        peer.sendall(target.head("GET /metrics", "Connection: close", token=target.token))
        page = b"".join(iter(lambda: peer.recv(1 << 16), b"")).decode()
    assert "# TYPE kedge_event_loop_pause_seconds histogram" in page
    (longest,) = [
        float(line.split()[1])
        for line in page.splitlines()
        if line.startswith("kedge_event_loop_longest_pause_seconds ")
    ]
    # After all of the above.
    assert 0 < longest < SHORT
