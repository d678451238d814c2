"""Runs a command in a container, and returns what it prints."""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.objects.connection import ApiSession
from kedge.cli.pods.exec.session import ExecOptions, connect
from kedge.client.client import path_of
from kedge.cluster.errors import ClusterError
from kedge.web.websocket import WebSocket

_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
_CHUNK = 32 << 10


class CommandResult(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    stdout: str
    stderr: str


async def run(
    session: ApiSession,
    namespace: str,
    pod: str,
    command: Sequence[str],
    *,
    container: str,
    stdin: str,
) -> CommandResult:
    """Run the command until it ends."""
    options = ExecOptions(pod=pod, command=command, container=container, stdin=bool(stdin))
    path = path_of(PODS, namespace, pod, "exec")
    connected = await connect(session, f"{path}?{options.query(container)}")
    try:
        if stdin:
            await _send(connected, stdin.encode())
        return await _receive(connected)
    finally:
        await connected.close()


async def _send(connected: WebSocket, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        for begin in range(0, len(data), _CHUNK):
            connected.send(bytes((_STDIN,)) + data[begin : begin + _CHUNK])
            await connected.drain()
        connected.send(bytes((_CLOSE, _STDIN)))


async def _receive(connected: WebSocket) -> CommandResult:
    output = {_STDOUT: bytearray(), _STDERR: bytearray()}
    while (message := await connected.receive()) is not None:
        if len(message) < 2:
            continue
        channel, data = message[0], message[1:]
        if channel in output:
            output[channel] += data
        elif channel == _ERROR:
            code = exit_code(msgspec.json.decode(data))
            return CommandResult(code, *(output[each].decode(errors="replace") for each in (1, 2)))
    raise ClusterError("the connection was lost before the command had ended")


def exit_code(status: dict[str, object]) -> int:
    """Return the exit code in the status of a command; raises ClusterError if it did not run."""
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise ClusterError(str(status.get("message", "the command did not run")))
