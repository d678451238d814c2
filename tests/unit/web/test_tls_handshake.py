"""Handshakes share the turns of the event loop, whichever loop it is."""

import asyncio
import gc
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kedge.apiserver import pki
from kedge.machinery.clock import SystemClock
from kedge.machinery.turns import next_turn
from kedge.testing.clock import BusyClock
from kedge.testing.raw_http import RawConnection
from kedge.web.connection_limits import ConnectionLimits
from kedge.web.duplex import Duplex
from kedge.web.limits import ServerLimits
from kedge.web.message import HttpRequest, Response
from kedge.web.server import HttpServer
from kedge.web.server_connection import ServerConnection
from kedge.web.tls_handshake import TlsHandshake

PEERS = 30
"""Fewer than are accepted in one turn."""
STEP_SECONDS = 0.005
PATIENCE = 20

type_of_run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[type_of_run]:
    """Run a coroutine in a loop of each sort."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@pytest.fixture
def identity(tmp_path: Path) -> pki.ServerIdentity:
    return pki.ensure(tmp_path, ("127.0.0.1",))


def ok(http: HttpRequest) -> Response:
    return Response(200, http.path.encode())


def client_hello() -> bytes:
    """The first message of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


class TurnCounter:
    """Counts the handshakes that are continued in each turn of the loop, and makes them slow."""

    def __init__(self, context: ssl.SSLContext, clock: BusyClock) -> None:
        self.begun: set[int] = set()
        self.steps: Counter[int] = Counter()
        self._turn = 0
        counter = self

        class SlowObject(ssl.SSLObject):
            def do_handshake(self) -> None:
                if id(self) in counter.begun:
                    counter.steps[counter._turn] += 1
                    clock.spend(STEP_SECONDS)
                counter.begun.add(id(self))
                super().do_handshake()

        context.sslobject_class = SlowObject

    async def count_until(self, is_over: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_over():
                self._turn += 1
                await next_turn()


def test_handshakes_of_many_peers_do_not_fill_one_turn(
    run: type_of_run, identity: pki.ServerIdentity
) -> None:
    async def attack() -> None:
        clock = BusyClock()
        counter = TurnCounter(identity.context, clock)
        server = HttpServer(ok, clock)
        port = await server.listen("127.0.0.1", 0, identity.context)
        with ExitStack() as stack:
            peers = [stack.enter_context(socket.socket()) for _ in range(PEERS)]
            for peer in peers:
                peer.connect(("127.0.0.1", port))
            await counter.count_until(lambda: len(counter.begun) == PEERS)
            hello = client_hello()
            for peer in peers:
                peer.sendall(hello)
            await counter.count_until(lambda: counter.steps.total() == PEERS)
            server.stop_listening()
            await next_turn()
        assert max(counter.steps.values()) <= 2 * 0.01 / STEP_SECONDS + 1

    run(attack())


def test_all_peers_of_a_burst_are_served(run: type_of_run, identity: pki.ServerIdentity) -> None:
    async def burst() -> None:
        # On a busy machine the handshakes of all take a while.
        patient = ServerLimits(handshake_seconds=PATIENCE, first_seconds=PATIENCE)
        limits = ConnectionLimits()
        server = HttpServer(ok, SystemClock(), patient, connection_limits=limits)
        port = await server.listen("127.0.0.1", 0, identity.context)
        tls = ssl.create_default_context(cadata=identity.ca_pem.decode())

        async def ask(number: int) -> bytes:
            connection = RawConnection(f"https://127.0.0.1:{port}", tls, "t")
            answers = [await connection.send("GET", f"/{number}", (), b"") for _ in range(2)]
            await connection.close()
            return b"".join(answer.body for answer in answers)

        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*(ask(number) for number in range(100)))
        assert answers == [b"/%d/%d" % (number, number) for number in range(100)]
        await server.close(grace=0.1)

    run(burst())


def test_a_handshake_that_comes_in_pieces_or_breaks_off_leaves_nothing_behind(
    run: type_of_run, identity: pki.ServerIdentity
) -> None:
    async def attack() -> None:
        server = HttpServer(ok, SystemClock())
        port = await server.listen("127.0.0.1", 0, identity.context)
        hello = client_hello()
        for content in (b"", b"GET / HTTP/1.1\r\n\r\n", hello[:100], hello, hello + b"x" * 10_000):
            with socket.create_connection(("127.0.0.1", port)) as peer, suppress(OSError):
                for at in range(0, len(content), 64):
                    peer.send(content[at : at + 64])
                    await next_turn()
        async with asyncio.timeout(PATIENCE):
            while server.slots._strangers:
                await next_turn()
        assert not server.connections
        await server.close(grace=0.1)

    run(attack())


def test_a_connection_is_read_in_small_pieces(
    run: type_of_run, identity: pki.ServerIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []
    receive = ServerConnection.data_received

    def counting(connection: ServerConnection, data: bytes) -> None:
        pieces.append(len(data))
        receive(connection, data)

    monkeypatch.setattr(ServerConnection, "data_received", counting)

    async def upload() -> None:
        server = HttpServer(ok, SystemClock(), ServerLimits(first_seconds=PATIENCE))
        port = await server.listen("127.0.0.1", 0, identity.context)
        tls = ssl.create_default_context(cadata=identity.ca_pem.decode())
        connection = RawConnection(f"https://127.0.0.1:{port}", tls, "t")
        assert (await connection.send("POST", "/", (), b" " * (2 << 20))).status == 200
        await connection.close()
        await server.close(grace=0.1)

    run(upload())
    assert sum(pieces) > 2 << 20
    assert max(pieces) <= 48 << 10  # what is read at once, and the rest of a record before it


@pytest.mark.parametrize("end", ["peer", "timeout", "eviction"])
def test_a_handshake_that_fails_is_freed_at_once(identity: pki.ServerIdentity, end: str) -> None:
    """TLS has buffers of 100 KB and more for each, and a search for garbage comes late."""

    async def attack() -> None:
        seconds = 0.05 if end == "timeout" else PATIENCE
        server = HttpServer(ok, SystemClock(), ServerLimits(handshake_seconds=seconds))
        port = await server.listen("127.0.0.1", 0, identity.context)
        slots, hello = server.slots, client_hello()
        with ExitStack() as peers:
            for _ in range(PEERS):
                peer = peers.enter_context(socket.create_connection(("127.0.0.1", port)))
                peer.send(hello[:20])
            while left(TlsHandshake) < (1 if end == "timeout" else PEERS):
                await next_turn()
            while end == "eviction" and slots._strangers:
                slots.evict_stranger()
            while end == "timeout" and slots._strangers:
                await next_turn()
        while slots._strangers or left(TlsHandshake) or left(ServerConnection):
            await next_turn()
        await server.close(grace=0.1)

    _without_search(attack())


@pytest.mark.parametrize("status", [200, 101])
def test_a_connection_that_ends_is_freed_at_once(identity: pki.ServerIdentity, status: int) -> None:
    async def read(duplex: Duplex) -> None:
        await duplex.read()

    def answer(http: HttpRequest) -> Response:
        headers = [("Connection", "Upgrade"), ("Upgrade", "other")]
        return ok(http) if status == 200 else Response(101, headers=headers, take_over=read)

    async def use() -> None:
        server = HttpServer(answer, SystemClock())
        port = await server.listen("127.0.0.1", 0, identity.context)
        tls = ssl.create_default_context(cadata=identity.ca_pem.decode())
        upgrade = [("Connection", "Upgrade"), ("Upgrade", "other")]
        for _ in range(3):
            connection = RawConnection(f"https://127.0.0.1:{port}", tls, "t")
            assert (await connection.send("GET", "/", upgrade, b"")).status == status
            await connection.close()
        del connection
        while left(TlsHandshake) or left(ServerConnection):
            await next_turn()
        await server.close(grace=0.1)

    _without_search(use())


def left(kind: type) -> int:
    """How many objects of a class there are, garbage included."""
    return sum(type(each) is kind for each in gc.get_objects())


def _without_search(work: Coroutine[Any, Any, None]) -> None:
    """Run with the server's own event loop: asyncio's TLS protocols are cycles themselves."""

    async def in_time() -> None:
        async with asyncio.timeout(PATIENCE):
            await work

    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(in_time())
    finally:
        gc.enable()
