"""Listen on this machine, and carry each connection to the pod over a WebSocket of its own.

The protocol is v4.channel.k8s.io: channel 0 carries data, channel 1 errors, and the first message
of each names the port. It has no way to end one direction only, so a connection ends as a whole.
"""

import asyncio
import contextlib
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Final

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.pods.exec.session import connect
from kedge.cli.pods.port_forward.ports import PortPair, parse
from kedge.cli.pods.selection import first_pod
from kedge.client.client import path_of
from kedge.client.transport import Unreachable
from kedge.machinery.errors import StatusError
from kedge.web.websocket import WebSocket

PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK: Final = 32 << 10
_REST_SECONDS: Final = 10.0
"""How long a pod may go on sending after a client has sent everything."""
_HOSTS: Final = {"localhost": ("127.0.0.1", "::1")}


async def forward(there: ApiSession, flags: Namespace) -> int:
    """Forward until Ctrl-C, or until the pod is gone."""
    word = flags.target if "/" in flags.target else f"pod/{flags.target}"
    [target] = await there.targets([word])
    document = await there.get(target.resource, target.name, there.namespace)
    pod = document if document["kind"] == "Pod" else await first_pod(there, word)
    phase = (pod.get("status") or {}).get("phase")
    if phase != "Running":
        raise Failure(f"unable to forward port because pod is not running. Current status={phase}")
    pairs = [parse(each, document, pod) for each in flags.ports]
    path = path_of(PODS, there.namespace, pod["metadata"]["name"], "portforward")
    forwarder = PodForwarder(there, path)
    async with contextlib.AsyncExitStack() as stack:
        for pair in pairs:
            for server in await _listen(forwarder, pair, flags.address.split(",")):
                await stack.enter_async_context(server)
        await forwarder.lost
    raise Failure("lost connection to pod")


async def _listen(
    forwarder: "PodForwarder", pair: PortPair, addresses: Sequence[str]
) -> list[asyncio.Server]:
    """Listen at a port of each address; one of several may not exist."""
    servers: list[asyncio.Server] = []
    local, problem = pair.local, ""
    for address in [host for each in addresses for host in _HOSTS.get(each, (each,))]:

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forwarder.carry(pair.remote, reader, writer)

        try:
            server = await asyncio.start_server(carry, address, local)
        except OSError as error:
            problem = problem or f"unable to listen on {address}:{local}: {error.strerror}"
            continue
        local = server.sockets[0].getsockname()[1]
        shown = f"[{address}]" if ":" in address else address
        print(f"Forwarding from {shown}:{local} -> {pair.remote}", flush=True)
        servers.append(server)
    if not servers:
        raise Failure(f"{problem}: choose another local port, as in {pair.local + 1}:{pair.remote}")
    return servers


class PodForwarder:
    """Carries connections to one pod."""

    def __init__(self, there: ApiSession, path: str) -> None:
        self._there = there
        self._path = path
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the pod cannot be reached any more."""

    async def carry(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry one connection until either side ends it."""
        print(f"Handling connection for {writer.get_extra_info('sockname')[1]}", flush=True)
        try:
            socket = await connect(self._there, f"{self._path}?ports={port}", PROTOCOL)
        except (StatusError, Unreachable, Failure) as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            writer.close()
            if isinstance(error, StatusError) and error.code == 404 and not self.lost.done():
                self.lost.set_result(None)
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                directions = [
                    tasks.create_task(_to_pod(reader, socket)),
                    tasks.create_task(_from_pod(socket, writer)),
                ]
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
                for each in directions:
                    each.cancel()
        finally:
            writer.close()
            await socket.close()


async def _to_pod(reader: asyncio.StreamReader, socket: WebSocket) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            socket.send(bytes((_DATA,)) + data)
            await socket.drain()
        # The protocol cannot tell the pod that nothing more comes. A client that has only ended its
        # own direction gets the rest of the answer; one that is gone must not keep the connection.
        await asyncio.sleep(_REST_SECONDS)  # noqa: TID251 - a limit, not a state that is waited for


async def _from_pod(socket: WebSocket, writer: asyncio.StreamWriter) -> None:
    begun: set[int] = set()
    with contextlib.suppress(ConnectionError):
        while (message := await socket.receive()) is not None:
            if not message:
                continue
            channel, data = message[0], message[1:]
            if channel not in begun:
                begun.add(channel)
                data = data[2:]  # the port
            if channel == _ERROR and data:
                print(f"error: {data.decode(errors='replace')}", file=sys.stderr, flush=True)
                return
            if channel == _DATA and data:
                writer.write(data)
                await writer.drain()
