"""Print the logs of the containers of a pod."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.objects.connection import ApiSession
from kedge.cli.pods import containers
from kedge.client.client import path_of


class LogFlags(NamedTuple):
    """The pod whose logs to show, and which part of them."""

    pod: str
    """A pod, or a workload with pods: NAME or TYPE/NAME."""
    labels: str = ""
    """Select all pods with these labels instead."""
    container: str = ""
    everyone: bool = False
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: int | None = None
    """Seconds."""
    prefix: bool = False

    def query(self, container: str) -> Mapping[str, str]:
        asked = {
            "container": container,
            "follow": "true" if self.follow else "",
            "previous": "true" if self.previous else "",
            "timestamps": "true" if self.timestamps else "",
            "tailLines": "" if self.tail in (None, -1) else str(self.tail),
            "sinceSeconds": "" if self.since is None else str(self.since),
        }
        return {name: value for name, value in asked.items() if value}


async def show(there: ApiSession, asked: LogFlags) -> int:
    """Print what is asked for, while it comes."""
    if asked.labels:
        pods = await there.list(PODS, there.namespace, {"labelSelector": asked.labels})
        if not pods:
            print(f"No resources found in {there.namespace} namespace.", file=sys.stderr)
    else:
        pods = [await containers.find(there, asked.pod)]
    shown = [each for pod in pods for each in _containers(there, asked, pod)]
    if asked.follow:
        await asyncio.gather(*shown)
    else:
        for each in shown:
            await each
    return 0


def _containers(
    there: ApiSession, asked: LogFlags, pod: containers.Pod
) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield the work of printing each of the pod's containers that are asked for."""
    if asked.everyone:
        names = containers.every(pod)
    elif asked.container:
        names = [containers.check(pod, asked.container)]
    else:
        names = [containers.usual(pod)]
    name = pod["metadata"]["name"]
    for container in names:
        yield _print(there, asked, name, container, sys.stdout.buffer)


async def _print(
    there: ApiSession, asked: LogFlags, pod: str, container: str, out: BinaryIO
) -> None:
    path = path_of(PODS, there.namespace, pod, "log")
    prefix = f"[pod/{pod}/{container}] ".encode() if asked.prefix else b""
    async with there.client.stream(path, asked.query(container)) as pieces:
        # Several that speak at once must not break each other's lines.
        whole = lines(pieces) if prefix or asked.everyone or asked.labels else pieces
        async for piece in whole:
            out.write(prefix + piece)
            out.flush()


async def lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same text line by line; the last one may not be ended."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).splitlines(keepends=True) or [b""]
        if rest.endswith(b"\n"):
            whole, rest = [*whole, rest], b""
        for line in whole:
            yield line
    if rest:
        yield rest
