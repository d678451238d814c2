"""`kedge logs`: what the containers of a pod have said."""

import asyncio
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Mapping
from typing import BinaryIO, Final, NamedTuple

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.objects import client_flags
from kedge.cli.objects.connection import ApiSession, visit
from kedge.cli.pods import containers
from kedge.client.client import path_of
from kedge.machinery.durations import parse_duration

DESCRIPTION: Final = """\
Show what a container of a pod has written to its output, as 'kubectl logs' does. Of a pod with
several containers it is the first, unless one is named."""
EXAMPLES: Final = """\
  # Everything so far, or the last ten lines and what comes
  kedge logs web
  kedge logs web -f --tail 10

  # The last five minutes, each line with its time
  kedge logs web --since 5m --timestamps

  # What the container said before it was restarted
  kedge logs web --previous

  # One container of several, or all of them
  kedge logs web -c proxy
  kedge logs web --all-containers"""


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="name of the pod")
    client_flags.add_cluster(parser)
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="which container")
    parser.add_argument("--all-containers", action="store_true", help="all containers of the pod")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on, until the container ends or Ctrl-C"
    )
    parser.add_argument(
        "--tail", type=_lines, metavar="N", help="only the last lines; -1 for all (default: all)"
    )
    parser.add_argument(
        "--since", type=_seconds, metavar="DURATION", help="only what is newer, such as 5s or 2h"
    )
    parser.add_argument(
        "-p", "--previous", action="store_true", help="of the run before the container's last start"
    )
    parser.add_argument("--timestamps", action="store_true", help="show when each line was said")
    parser.add_argument(
        "--prefix", action="store_true", help="say in front of each line who has said it"
    )


def _lines(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -2
    if number < -1:
        raise ArgumentTypeError("--tail must be greater than or equal to -1")
    return number


def _seconds(text: str) -> int:

    try:
        nanoseconds = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if nanoseconds <= 0:
        raise ArgumentTypeError("--since must be greater than 0")
    return -(-nanoseconds // 10**9)


def run(flags: Namespace) -> int:
    if flags.container and flags.all_containers:
        raise Failure("--all-containers=true should not be specified with container name")
    asked = LogFlags(
        pod=flags.pod,
        container=flags.container,
        everyone=flags.all_containers,
        follow=flags.follow,
        previous=flags.previous,
        timestamps=flags.timestamps,
        tail=flags.tail,
        since=flags.since,
        prefix=flags.prefix,
    )
    return visit(client_config(Settings(flags)), lambda there: show(there, asked))


class LogFlags(NamedTuple):
    """Whose logs are to be shown, and what of them."""

    pod: str
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
    pod = await containers.find(there, asked.pod)
    if asked.everyone:
        names = containers.every(pod)
    elif asked.container:
        names = [containers.check(pod, asked.container)]
    else:
        names = [containers.usual(pod)]
    path = path_of(PODS, there.namespace, pod["metadata"]["name"], "log")
    out = sys.stdout.buffer
    shown = [_print(there, path, asked, name, out) for name in names]
    if asked.follow:
        await asyncio.gather(*shown)
    else:
        for each in shown:
            await each
    return 0


async def _print(
    there: ApiSession, path: str, asked: LogFlags, container: str, out: BinaryIO
) -> None:
    prefix = f"[pod/{asked.pod}/{container}] ".encode() if asked.prefix else b""
    async with there.client.stream(path, asked.query(container)) as pieces:
        # Several that speak at once must not break each other's lines.
        whole = lines(pieces) if prefix or asked.everyone else pieces
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
