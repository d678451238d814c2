"""A session with a command in a container, over a WebSocket."""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import USER_AGENT, ApiSession
from kedge.cli.pods import containers
from kedge.client.client import error_of, path_of
from kedge.client.transport import Unreachable
from kedge.web import websocket
from kedge.web.exchange import OutgoingRequest, ServerAddress, ask
from kedge.web.websocket import WebSocket

PROTOCOL: Final = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_CHUNK: Final = 32 << 10
_MOST_SAID: Final = 64 << 10


class ExecOptions(NamedTuple):
    """The command to run, and the container to run it in."""

    pod: str
    command: Sequence[str]
    container: str = ""
    stdin: bool = False
    tty: bool = False

    def query(self, container: str) -> str:
        flags = {
            "stdin": self.stdin,
            "stdout": True,
            "stderr": not self.tty,
            "tty": self.tty,
        }
        return urlencode(
            [
                *(("command", word) for word in self.command),
                ("container", container),
                *((name, "true") for name, on in flags.items() if on),
            ]
        )


async def execute(there: ApiSession, asked: ExecOptions) -> int:
    """Run it; the exit code is the command's."""
    if asked.tty and asked.stdin and not sys.stdin.isatty():
        print("Unable to use a TTY - input is not a terminal or the right kind of file")
        asked = asked._replace(tty=False)
    pod = await containers.find(there, asked.pod)
    named = asked.container
    container = containers.check(pod, named) if named else containers.usual(pod)
    path = path_of(PODS, there.namespace, pod["metadata"]["name"], "exec")
    connected = await connect(there, f"{path}?{asked.query(container)}")
    with raw_terminal() if asked.tty and asked.stdin else contextlib.nullcontext():
        status = await converse(connected, asked)
    return exit_code(status)


async def connect(there: ApiSession, target: str, protocol: str = PROTOCOL) -> WebSocket:
    """A WebSocket to a path of the server; raises what the server refuses."""
    login = there.login
    parts = urlsplit(login.server)
    secure = parts.scheme == "https"
    address = ServerAddress(
        parts.hostname or "",
        parts.port or (443 if secure else 80),
        login.tls() if secure else None,
        login.server_name or None,
    )
    key = websocket.new_key()
    headers = [*websocket.offering(key, [protocol]), ("User-Agent", USER_AGENT)]
    if login.token:
        headers.append(("Authorization", f"Bearer {login.token}"))
    try:
        exchange = await ask(
            address, OutgoingRequest("GET", parts.path.rstrip("/") + target, headers)
        )
    except (OSError, TimeoutError) as error:
        raise Unreachable(str(error)) from error
    if exchange.status != 101:
        said = await exchange.whole(_MOST_SAID)
        refusal = error_of(exchange.status, said)
        if refusal.reason != "Unknown":
            raise refusal
        raise Failure(f"unable to upgrade connection: {refusal.message}")
    if exchange.header("sec-websocket-accept") != websocket.accept_key(key):
        raise Failure("the server answered the request for a WebSocket with something else")
    return WebSocket(exchange.upgraded(), client=True)


async def converse(connected: WebSocket, asked: ExecOptions) -> dict[str, Any]:
    """Carry input and output until the command has ended; returns what is said about that."""
    loop = asyncio.get_running_loop()
    tasks = []
    if asked.stdin:
        # This function owns the task: it ends with the command.
        tasks.append(loop.create_task(_send_input(connected)))
    if asked.tty and sys.stdin.isatty():
        tell = _size_teller(connected)
        loop.add_signal_handler(signal.SIGWINCH, tell)
        tell()
    try:
        return await _receive(connected)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connected.close()


async def _receive(connected: WebSocket) -> dict[str, Any]:
    """Print what comes; returns what is said at the end."""
    outputs = {_STDOUT: sys.stdout.buffer, _STDERR: sys.stderr.buffer}
    while (message := await connected.receive()) is not None:
        if len(message) < 2:
            continue
        channel, data = message[0], message[1:]
        if out := outputs.get(channel):
            out.write(data)
            out.flush()
        elif channel == _ERROR:
            status: dict[str, Any] = msgspec.json.decode(data)
            return status
    raise Failure("the connection was lost before the command had ended")


def exit_code(status: dict[str, Any]) -> int:
    """The command's own; raises Failure if it could not even be run."""
    if status.get("status") == "Success":
        return 0
    if status.get("reason") == "NonZeroExitCode":
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode":
                code = int(cause["message"])
                print(f"command terminated with exit code {code}", file=sys.stderr)
                return code
    raise Failure(str(status.get("message", "the command failed")))


async def _send_input(connected: WebSocket) -> None:
    with contextlib.suppress(ConnectionError):
        async for data in _input():
            connected.send(bytes((_STDIN,)) + data)
            await connected.drain()
        connected.send(bytes((_CLOSE, _STDIN)))


async def _input() -> AsyncIterator[bytes]:
    """Yield the bytes of standard input, be it a terminal, a pipe or a file."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(8)

    def read() -> None:
        # Not every file can be waited for by the event loop; a thread can read them all.
        data = b"?"
        while data:
            room.acquire()
            try:
                data = os.read(0, _CHUNK)
            except OSError:
                data = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, data)
            except RuntimeError:
                return  # The loop is closed.

    threading.Thread(target=read, daemon=True).start()
    while data := await pieces.get():
        yield data
        room.release()


def _size_teller(connected: WebSocket) -> Any:
    def tell() -> None:
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(0)
            told = {"Width": size.columns, "Height": size.lines}
            connected.send(bytes((_RESIZE,)) + msgspec.json.encode(told))

    return tell


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Pass every key on as it is, Ctrl-C included; the terminal is put back as it was."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
