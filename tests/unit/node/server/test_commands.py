"""Commands far away: what goes in, what comes out, and how they end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kedge.node.runtime.runtime import RuntimeFailure
from kedge.node.server import commands, status
from kedge.node.server.commands import TerminalSizes
from kedge.node.server.remote import RemoteChannel, StreamOptions, Take
from kedge.testing.clock import FakeClock
from kedge.testing.streams import FakeCommand, StreamingRuntime

ALL = StreamOptions(stdin=True, stdout=True, stderr=True, tty=False)
SILENT = StreamOptions(stdin=False, stdout=True, stderr=True, tty=False)
PATIENCE = 60


class FakeClient:
    """Somebody who types, looks and leaves when the test says so."""

    def __init__(self) -> None:
        self.shown: dict[RemoteChannel, bytes] = {
            RemoteChannel.STDOUT: b"",
            RemoteChannel.STDERR: b"",
        }
        self.outcome: status.Status | None = None
        self._typed: asyncio.Queue[tuple[RemoteChannel, bytes] | None] = asyncio.Queue()
        self.slow = asyncio.Event()
        self.slow.set()

    def type(self, data: bytes, channel: RemoteChannel = RemoteChannel.STDIN) -> None:
        self._typed.put_nowait((channel, data))

    def leave(self) -> None:
        self._typed.put_nowait(None)

    async def listen(self, take: Take) -> None:
        while (typed := await self._typed.get()) is not None:
            await take(*typed)

    def send(self, channel: RemoteChannel, data: bytes) -> None:
        self.shown[channel] += data

    async def drain(self) -> None:
        await self.slow.wait()

    async def end(self, outcome: status.Status) -> None:
        self.outcome = outcome


@pytest.fixture
def runtime() -> StreamingRuntime:
    return StreamingRuntime(FakeClock())


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


class Running:
    """A command that is under way, and the server's side of it."""

    def __init__(self, command: FakeCommand, task: "asyncio.Task[None]") -> None:
        self.command = command
        self.task = task

    async def done(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.task
        assert self.command.closed


async def execute(runtime: StreamingRuntime, wanted: StreamOptions, client: FakeClient) -> Running:
    deed = commands.execute(runtime, "id", ["sh"], wanted, client)
    task = asyncio.get_running_loop().create_task(deed)
    return Running(await runtime.begun.get(), task)


@pytest.fixture
async def running(runtime: StreamingRuntime, client: FakeClient) -> AsyncIterator[Running]:
    made = await execute(runtime, ALL, client)
    yield made
    if not made.task.done():
        made.task.cancel()
        await asyncio.wait([made.task])


async def heard(command: FakeCommand) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await asyncio.to_thread(command.hear)


async def test_output_and_exit_code_reach_the_client(running: Running, client: FakeClient) -> None:
    running.command.say(b"out")
    running.command.complain(b"err")
    running.command.end(3)
    await running.done()
    assert client.shown == {RemoteChannel.STDOUT: b"out", RemoteChannel.STDERR: b"err"}
    assert client.outcome == status.ended(["sh"], 3)


async def test_the_last_word_comes_before_the_end(running: Running, client: FakeClient) -> None:
    client.slow.clear()
    running.command.say(b"x" * 50_000)
    running.command.end(0)
    await asyncio.wait([running.task], timeout=0.01)
    assert client.outcome is None
    client.slow.set()
    await running.done()
    assert len(client.shown[RemoteChannel.STDOUT]) == 50_000
    assert client.outcome == status.SUCCESS


async def test_input_arrives_and_so_does_its_end(running: Running, client: FakeClient) -> None:
    client.type(b"hello")
    assert await heard(running.command) == b"hello"
    client.type(b"")
    assert await heard(running.command) == b""
    running.command.end()
    await running.done()


async def test_more_input_than_a_pipe_holds_is_carried(
    running: Running, client: FakeClient
) -> None:
    client.type(b"y" * 300_000)
    client.type(b"")
    total = 0
    while piece := await heard(running.command):
        total += len(piece)
    assert total == 300_000
    running.command.end()
    await running.done()


async def test_a_command_that_does_not_listen_is_no_failure(
    running: Running, client: FakeClient
) -> None:
    running.command.stop_listening()
    client.type(b"into the void")
    client.type(b"again")
    running.command.say(b"done")
    running.command.end(0)
    await running.done()
    assert client.outcome == status.SUCCESS


async def test_a_client_that_leaves_ends_the_command(running: Running, client: FakeClient) -> None:
    client.leave()
    await running.done()
    assert client.outcome is None


async def test_a_terminal_has_a_size_and_no_end_of_input(
    runtime: StreamingRuntime, client: FakeClient
) -> None:
    wanted = StreamOptions(stdin=True, stdout=True, stderr=False, tty=True)
    made = await execute(runtime, wanted, client)
    client.type(b'{"Width":80,"Hei', RemoteChannel.RESIZE)
    client.type(b'ght":24}\n', RemoteChannel.RESIZE)
    client.type(b"ls")
    assert await heard(made.command) == b"ls"
    assert made.command.sizes == [(80, 24)]
    made.command.end()
    await made.done()


async def test_what_is_not_wanted_is_taken_all_the_same(
    runtime: StreamingRuntime, client: FakeClient
) -> None:
    only_errors = StreamOptions(stdin=False, stdout=False, stderr=True, tty=False)
    made = await execute(runtime, only_errors, client)
    for _ in range(5):  # more than a pipe holds
        await asyncio.to_thread(made.command.say, b"z" * 30_000)
    made.command.end()
    await made.done()
    assert client.shown[RemoteChannel.STDOUT] == b""


async def test_a_command_that_cannot_be_run_is_an_internal_error(
    runtime: StreamingRuntime, client: FakeClient
) -> None:
    runtime.failures["exec_stream"].append(RuntimeFailure('exec: "nope": not found'))
    await commands.execute(runtime, "id", ["nope"], SILENT, client)
    assert client.outcome is not None
    assert client.outcome["reason"] == "InternalError"
    assert client.outcome["message"] == (
        'Internal error occurred: error executing command in container: exec: "nope": not found'
    )


async def test_an_attached_client_sees_a_container_to_its_end(
    runtime: StreamingRuntime, client: FakeClient
) -> None:
    deed = commands.attach(runtime, "id", SILENT, client)
    task = asyncio.get_running_loop().create_task(deed)
    made = Running(await runtime.begun.get(), task)
    made.command.say(b"working")
    made.command.end(7)
    await made.done()
    assert client.shown[RemoteChannel.STDOUT] == b"working"
    assert client.outcome == status.SUCCESS  # how it ended is the pod's status to tell


def test_sizes_are_read_from_pieces_and_nonsense_is_passed_over() -> None:
    sizes = TerminalSizes()
    assert sizes.feed(b'{"Width":80,"Height":24}\n{"Width":1') == [(80, 24)]
    assert sizes.feed(b'00,"Height":50}') == [(100, 50)]
    assert sizes.feed(b'nonsense}{"Width":0,"Height":0}{"Width":70000,"Height":1}') == []
    assert sizes.feed(b'{"Width":2,"Height":3}') == [(2, 3)]


class BrokenClient(FakeClient):
    """A client whose connection is lost when it is sent something."""

    async def drain(self) -> None:
        raise ConnectionResetError("the peer has gone")


async def test_nobody_waits_for_a_descriptor_that_is_closed(runtime: StreamingRuntime) -> None:
    """Its number is used again, and what comes then is for somebody else."""
    before = asyncio.all_tasks()
    made = await execute(runtime, ALL, BrokenClient())
    made.command.say(b"one output fails while the other waits")
    await made.done()
    assert asyncio.all_tasks() == before
