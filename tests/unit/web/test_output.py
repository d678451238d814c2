"""Large answers are written in pieces, which share the turns of the event loop."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from kedge.machinery.turns import Turns
from kedge.testing.clock import BusyClock
from kedge.web.output import Chunks, Output, write_pieces


class WrittenChunks(Chunks):
    """A peer that reads at once."""

    def __init__(self) -> None:
        self.content: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.content.append(data)

    async def drain(self) -> None:
        pass

    def end(self) -> None:
        pass


async def test_many_large_answers_leave_time_for_others_in_each_turn() -> None:
    clock, made = BusyClock(), list[int]()
    shared = Turns(clock.monotonic, share_seconds=0.02)

    def pieces(number: int) -> Iterator[bytes]:
        for _ in range(3):
            clock.spend(0.005)
            made.append(number)
            yield b"x"

    peers = [WrittenChunks() for _ in range(30)]
    turns = list[int]()

    def turn() -> None:
        turns.append(len(made))
        if len(made) < 90:
            asyncio.get_running_loop().call_soon(turn)

    async with asyncio.TaskGroup() as tasks:
        for number, peer in enumerate(peers):
            tasks.create_task(write_pieces(peer, pieces(number), shared, gzip=False))
        turn()
    assert [peer.content for peer in peers] == [[b"x"] * 3] * 30
    # The first pieces are made as the requests are answered.
    later = [after - before for before, after in itertools.pairwise(turns[1:])]
    assert max(later) <= 5
    last = {number: at for at, number in enumerate(made)}
    assert min(last.values()) > 30, "no answer waits until another one is complete"


class NotedWrites(asyncio.Transport):
    """The end of a connection that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))


class SecureWrites(NotedWrites):
    """The same with TLS."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return "context" if name == "sslcontext" else default

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.writes.append(b"|".join(map(bytes, list_of_data)))


class EndOfTurn:
    """A write queue whose turn a test ends."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []

    def write_soon(self, output: Output) -> None:
        self.outputs.append(output)

    def end(self) -> None:
        while self.outputs:
            self.outputs.pop().flush()


def test_chunks_of_one_turn_are_one_write() -> None:
    transport, turn = NotedWrites(), EndOfTurn()
    chunks = Chunks(Output(transport, turn), framed=True)
    for event in (b"first", b"second"):
        chunks.write(event)
    assert transport.writes == []
    turn.end()
    assert transport.writes == [b"5\r\nfirst\r\n6\r\nsecond\r\n"]
    chunks.write(b"third")
    chunks.end()
    assert transport.writes[1:] == [b"5\r\nthird\r\n0\r\n\r\n"]


def test_the_end_of_a_body_without_frames_waits_for_no_turn() -> None:
    transport = NotedWrites()
    chunks = Chunks(Output(transport, EndOfTurn()), framed=False)
    chunks.write(b"last event")
    chunks.end()
    assert transport.writes == [b"last event"]


def test_a_long_piece_is_not_copied() -> None:
    transport, turn = NotedWrites(), EndOfTurn()
    Chunks(Output(transport, turn), framed=True).write(b"x" * (256 << 10))
    turn.end()
    assert list(map(len, transport.writes)) == [7, 256 << 10, 2]


def test_a_long_piece_and_its_frame_are_one_write_to_the_socket_of_tls() -> None:
    transport, turn = SecureWrites(), EndOfTurn()
    Chunks(Output(transport, turn), framed=True).write(b"x" * (256 << 10))
    turn.end()
    assert transport.writes == [b"40000\r\n|%b|\r\n" % (b"x" * (256 << 10))]


def test_many_events_are_few_records_although_they_are_large_together() -> None:
    transport, turn = NotedWrites(), EndOfTurn()
    chunks = Chunks(Output(transport, turn), framed=True)
    for _ in range(100):
        chunks.write(b"x" * 1000)
    turn.end()
    assert len(transport.writes) == 2


def test_chunks_that_are_large_together_do_not_wait_for_the_end_of_the_turn() -> None:
    transport, turn = NotedWrites(), EndOfTurn()
    chunks = Chunks(Output(transport, turn), framed=False)
    for _ in range(3):
        chunks.write(b"x" * (40 << 10))
    assert sum(map(len, transport.writes)) == 80 << 10
