"""Measure the cost of metrics for a server: simulated nodes report over the API, and clients read.

For each number of nodes the benchmark starts a server, registers nodes and pods, and lets every
node report with its own token when a real node would. Meanwhile it measures over TLS: processor
time, memory, lists, selections, the age of the data and the delay of watches. Clients that are
timed have a process of their own. The table shows the bar beside each figure, for 100 nodes.
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import random
import re
import ssl
import subprocess
import sys
import tempfile
import zlib
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import uvloop

from kedge.machinery.clock import SystemClock
from kedge.metrics.detail_windows import CODES, MASKS
from kedge.metrics.frame import WIDTH, Frame, FrameContainer, FramePod
from kedge.metrics.frame_codec import CONTENT_TYPE, encode, path_of
from kedge.metrics.windows import DETAILS, TICK_SECONDS
from kedge.node.stats.publisher import moment

CLOCK = SystemClock()

PODS = "/apis/metrics/v1alpha1/pods"
USAGE = "/apis/metrics.k8s.io/v1beta1/pods"
SYSTEMS = ("kubelet", "runtime", "misc", "pods")


def show(what: str, figure: str, bar: str = "") -> None:
    print(f"{what:26} {figure:58} {bar}".rstrip(), flush=True)


def percentiles(times: list[float]) -> str:
    times.sort()
    p99 = times[-(-99 * len(times) // 100) - 1]
    return f"p50 {times[len(times) // 2]:7.2f}   p99 {p99:7.2f} ms"


class Connection:
    """A kept connection that speaks just enough HTTP."""

    def __init__(self, port: int, token: str, source: str = "127.0.0.1") -> None:
        """`source` is the address that it comes from: a server limits how many come from one."""
        self._source = source
        self._port = port
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(
        self, method: str, path: str, body: bytes = b"", type_: str = "application/json"
    ) -> tuple[int, bytes]:
        reader, _ = await self.send(method, path, body, type_)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" in head:
            parts = []
            while size := int(await reader.readuntil(b"\r\n"), 16):
                parts.append(await reader.readexactly(size))
                await reader.readexactly(2)
            await reader.readexactly(2)
            return status, b"".join(parts)
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        return status, await reader.readexactly(length)

    async def send(
        self, method: str, path: str, body: bytes, type_: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._streams = await asyncio.open_connection(
                "127.0.0.1", self._port, ssl=context, limit=1 << 24, local_addr=(self._source, 0)
            )
        writer = self._streams[1]
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {self._token}\r\n"
            f"Content-Type: {type_}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Server:
    """A server of our own."""

    def __init__(self, directory: Path, nodes: int, *, scheduler: bool = False) -> None:
        """`scheduler` says whether its scheduler follows all that is reported."""
        tokens = directory / "tokens.csv"
        tokens.write_text(
            "".join(f'node-token-{n},system:node:n{n},u{n},"system:nodes"\n' for n in range(nodes))
        )
        self.state = directory / "state"
        self._log = (directory / "log").open("w")
        mine = {k: v for k, v in os.environ.items() if not k.startswith("KEDGE_")}
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kedge", "server", f"--state={self.state}", "--port=0"),
                *("--store=memory", f"--token-auth-file={tokens}"),
                *([] if scheduler else ["--scheduler-usage=off"]),
                # The nodes report only usage; without leases they must not count as unreachable.
                "--node-monitor-grace-period=24h",
            ],
            env=mine,
            stdout=self._log,
            stderr=self._log,
        )
        self.pid = self._process.pid
        self.port = self._wait_for_port()
        self.token = (self.state / "token").read_text().strip()

    def _wait_for_port(self) -> int:
        """The port that the kubeconfig names, which is written last."""
        known = self.state / "kubeconfig"
        while not known.exists():
            if self._process.poll() is not None:
                sys.exit("the server did not start: " + Path(self._log.name).read_text())
            asyncio.run(CLOCK.sleep(0.05))
        return int(re.findall(r"https://127.0.0.1:(\d+)", known.read_text())[0])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return sum(self.user_and_system())

    def user_and_system(self) -> tuple[float, float]:
        """Seconds that it has computed so far, and that the system has for it."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return int(fields[11]) / ticks, int(fields[12]) / ticks

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def address_of(node: int) -> str:
    """Where a node's connections come from."""
    return f"127.1.{node // 250}.{node % 250 + 1}"


class Node:
    """A simulated node. All of its numbers change from one report to the next."""

    def __init__(
        self, server: Server, number: int, pods: Sequence[tuple[str, str]], filled: int
    ) -> None:
        """`filled` is the number of details of each pod that are not 0."""
        self.name = f"n{number}"
        self._connection = Connection(server.port, f"node-token-{number}", address_of(number))
        self.delay = moment(zlib.crc32(self.name.encode()))
        """Seconds after a tick at which it reports."""
        self._last = 0
        self._frame = self._first(pods, random.Random(number))
        self._frame = self._frame._replace(details=_details(len(pods), filled, number))

    def _first(self, pods: Sequence[tuple[str, str]], chance: random.Random) -> Frame:
        since = int(CLOCK.now().timestamp()) - 2 * 86400
        at = 1 + len(SYSTEMS)
        measured = [
            FramePod(
                f"bench-{n}", name, uid, since, 0, at + n, [FrameContainer("main", since, at + n)]
            )
            for n, (name, uid) in enumerate(pods)
        ]
        numbers = array("q")
        for _ in range((at + len(pods)) * WIDTH // 2):
            numbers.append(chance.randrange(10**9))
            numbers.append(chance.randrange(10**6))
        systems = [FrameContainer(name, since, 1 + n) for n, name in enumerate(SYSTEMS)]
        return Frame(self.name, "u", 1, TICK_SECONDS, since, systems, measured, numbers)

    def frame(self, tick: int) -> bytes:
        turn = 2 * (1 + tick % 100)
        # Other numbers than in the last report: the machine has those of a pod, and so on.
        values = array("q", self._frame.values[turn:]) + array("q", self._frame.values[:turn])
        return encode(self._frame._replace(end_tick=tick, values=values))

    def next_tick(self) -> int:
        self._last = max(int(CLOCK.now().timestamp()) // TICK_SECONDS, self._last + 1)
        return self._last

    async def send(self, body: bytes) -> None:
        status, answer = await self._connection.request(
            "POST", path_of(self.name), body, CONTENT_TYPE
        )
        assert status == 200, answer

    async def report(self) -> None:
        """Report the latest tick."""
        await self.send(self.frame(self.next_tick()))


def _details(pods: int, filled: int, seed: int) -> Sequence[bytes]:
    """The rows of details of a node and its pods; none if no detail is filled."""
    chance = random.Random(seed)
    known = (1 << len(DETAILS)) - 1

    def row() -> bytes:
        codes = array("H", (chance.randrange(20_000, 40_000) for _ in range(CODES * filled)))
        return MASKS.pack(known, (1 << filled) - 1) + codes.tobytes()

    return [row() for _ in range(1 + len(SYSTEMS) + pods)] if filled else ()


async def fill(server: Server, nodes: int, pods: int, filled: int = 0) -> list[Node]:
    """Register everything."""
    admin = Connection(server.port, server.token)

    async def create(connection: Connection, path: str, document: Any) -> Any:
        status, body = await connection.request("POST", path, json.dumps(document).encode())
        assert status == 201, body
        return json.loads(body)

    for each in range(pods):
        await create(admin, "/api/v1/namespaces", {"metadata": {"name": f"bench-{each}"}})

    async def one(number: int) -> Node:
        connection = Connection(server.port, server.token, address_of(number))
        await create(connection, "/api/v1/nodes", {"metadata": {"name": f"n{number}"}})
        made = []
        for each in range(pods):
            name = f"web-{number:04}-{each:03}"
            labels = {"app": f"app-{(number * pods + each) % (nodes * pods // 100)}"}
            spec = {
                "nodeName": f"n{number}",
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "host"}],
                "tolerations": [{"operator": "Exists"}],
            }
            document = {"metadata": {"name": name, "labels": labels}, "spec": spec}
            pod = await create(connection, f"/api/v1/namespaces/bench-{each}/pods", document)
            made.append((name, pod["metadata"]["uid"]))
        connection.close()
        return Node(server, number, made, filled)

    found: list[Node] = []
    for start in range(0, nodes, 10):
        found += await asyncio.gather(*(one(n) for n in range(start, min(start + 10, nodes))))
    return found


async def reporting(nodes: Sequence[Node]) -> None:
    """Every node after each tick, when it is its turn."""

    async def one(node: Node) -> None:
        while True:
            now = CLOCK.now().timestamp()
            due = (now // TICK_SECONDS + 1) * TICK_SECONDS + node.delay
            await CLOCK.sleep(due - now)
            await node.report()

    await asyncio.gather(*(one(node) for node in nodes))


def reads(port: int, token: str, path: str, calls: int, pause: float) -> tuple[list[float], bytes]:
    """Latencies of one read after the other, and what was read last."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    connection.connect()
    times, body = [], b""
    for _ in range(calls):
        asyncio.run(CLOCK.sleep(pause))
        start = CLOCK.monotonic()
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read()
        times.append((CLOCK.monotonic() - start) * 1e3)
        assert answer.status == 200, body[:300]
    return times, body


def ages(port: int, token: str, path: str, seconds: float) -> list[float]:
    """Return the age of the data in each of many reads."""
    found = []
    until = CLOCK.monotonic() + seconds
    while CLOCK.monotonic() < until:
        _, body = reads(port, token, path, 1, 0.2)
        now = CLOCK.now()
        for item in json.loads(body)["items"]:
            end = datetime.fromisoformat(item["timestamp"])
            found.append((now - end).total_seconds())
    return sorted(found)


class Reader:
    """A client in a process of its own."""

    def __init__(self, server: Server, executor: Executor) -> None:
        self._server = server
        self._executor = executor

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        known = (self._server.port, self._server.token)
        return await loop.run_in_executor(self._executor, function, *known, *arguments)

    async def read(self, path: str, calls: int, pause: float = 0.0) -> str:
        before = self._server.cpu()
        times, body = await self.run(reads, path, calls, pause)
        cpu = (self._server.cpu() - before) / calls * 1e3
        return f"{len(body) / 1e6:7.2f} MB   {percentiles(times)}   {cpu:6.1f} CPU-ms each"


async def watch_lag(server: Server, nodes: Sequence[Node], watchers: int, path: str) -> str:
    """How long after a node's report all watchers have heard of all that it changes for them."""
    _, whole = await Connection(server.port, server.token).request("GET", path)
    listed = json.loads(whole)
    version = listed["metadata"]["resourceVersion"]
    path += ("&" if "?" in path else "?") + f"watch=true&resourceVersion={version}"
    told_each = sum(
        nodes[0].name == f"n{int(item['metadata']['name'].split('-')[1])}"
        for item in listed["items"]
    )
    lags: list[float] = []
    sent = 0.0
    told = asyncio.Event()

    async def follow(ready: asyncio.Barrier) -> None:
        connection = Connection(server.port, server.token, "127.2.0.1")
        try:
            reader, _ = await connection.send("GET", path, b"", "")
            await reader.readuntil(b"\r\n\r\n")
            await ready.wait()
            await hear(reader)
        finally:
            connection.close()

    async def hear(reader: asyncio.StreamReader) -> None:
        seen, rest = 0, b""
        while True:
            text = rest + await reader.read(1 << 20)
            seen += text.count(b'"MODIFIED"')
            rest = text[-9:]  # what may be the beginning of another
            if seen >= told_each:
                seen = 0
                lags.append((CLOCK.monotonic() - sent) * 1e3)
                if len(lags) % watchers == 0:
                    told.set()

    async with asyncio.TaskGroup() as group:
        ready = asyncio.Barrier(watchers + 1)
        tasks = [group.create_task(follow(ready)) for _ in range(watchers)]
        await ready.wait()
        await CLOCK.sleep(0.5)
        before = server.cpu()
        for node in nodes:
            await CLOCK.sleep(0.3)
            told.clear()
            body = node.frame(node.next_tick())
            sent = CLOCK.monotonic()
            await node.send(body)
            await asyncio.wait_for(told.wait(), 10)
        cpu = (server.cpu() - before) * 1e3
        for task in tasks:
            task.cancel()
    return f"{told_each} events each   {percentiles(lags)}   {cpu / len(nodes):.1f} CPU-ms a report"


async def measure(
    server: Server, executor: Executor, flags: argparse.Namespace, count: int
) -> None:
    nodes = await fill(server, count, flags.pods, flags.details)
    await CLOCK.sleep(3)
    idle = server.resident_mb()
    print(
        f"{count} nodes x {flags.pods} pods; server with the pods {idle:.0f} MB; its scheduler "
        + ("reads what is used" if flags.scheduler else "has nothing to do with it")
    )
    begun = server.cpu()
    await CLOCK.sleep(flags.seconds)
    rest = (server.cpu() - begun) / flags.seconds * 60
    show("idling", f"{rest:8.2f} CPU-s/min")
    begun = server.cpu()
    for node in nodes:
        await node.report()
    spent = server.cpu() - begun
    show("first reports", f"{spent / len(nodes) * 1e3:8.2f} CPU-ms each")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reporting(nodes))
        await while_reporting(server, Reader(server, executor), flags, idle, rest)
        task.cancel()
    shop = "/apis/metrics/v1alpha1/namespaces/bench-0/pods"
    lag = await watch_lag(server, nodes[:10], flags.watchers, shop)
    show(f"{flags.watchers} watch a namespace", lag, "p99 50 ms")
    lag = await watch_lag(server, nodes[10:20], flags.watchers, PODS)
    show(f"{flags.watchers} watch all pods", lag, "p99 50 ms")
    print(f"load average {os.getloadavg()[0]:.1f}")


async def while_reporting(
    server: Server, reader: Reader, flags: argparse.Namespace, idle: float, rest: float
) -> None:
    """`idle` and `rest`: the memory and the processor time that it takes anyway."""
    await CLOCK.sleep(TICK_SECONDS - CLOCK.now().timestamp() % TICK_SECONDS + 1)
    before, start = server.user_and_system(), CLOCK.monotonic()
    await CLOCK.sleep(flags.seconds)
    minutes = (CLOCK.monotonic() - start) / 60
    user, system = (
        (now - then) / minutes for now, then in zip(server.user_and_system(), before, strict=True)
    )
    show(
        "reports every 10 s",
        f"{user + system - rest:8.2f} CPU-s/min beside idling (system {system:.2f})",
        "0.3 CPU-s/min",
    )
    show("memory for them", f"{server.resident_mb() - idle:8.1f} MB", "40 MB")
    some = f"{USAGE}?labelSelector=app%3Dapp-1"
    old = await reader.run(ages, some, 2.0 * TICK_SECONDS)
    show(
        "how old what is read is",
        f"p50 {old[len(old) // 2]:6.2f}   p99 {old[int(len(old) * 0.99)]:6.2f} s",
        "p99 11 s",
    )
    show("metrics.k8s.io, all", await reader.read(USAGE, flags.calls), "15 / 50 ms")
    show("four windows, all", await reader.read(PODS, flags.calls), "40 / 100 ms")
    spread = await reader.read(USAGE, flags.calls, 0.25)
    show("metrics.k8s.io, 4 a second", spread, "15 / 50 ms")
    spread = await reader.read(PODS, flags.calls, 0.25)
    show("four windows, 4 a second", spread, "40 / 100 ms")
    show("100 of them by label", await reader.read(some, 300), "1 / 3 ms")
    show("memory after lists", f"{server.resident_mb() - idle:8.1f} MB", "40 MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100], help="one run for each")
    parser.add_argument("--pods", type=int, default=100, help="on each node")
    parser.add_argument("--seconds", type=float, default=30, help="how long reports are measured")
    parser.add_argument("--calls", type=int, default=100, help="of each list")
    parser.add_argument("--details", type=int, default=0, help="that are not 0, of each pod")
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument(
        "--scheduler", action="store_true", help="the scheduler follows all that is reported, too"
    )
    flags = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for count in flags.nodes:
        with (
            tempfile.TemporaryDirectory(prefix="kedge-bench-") as directory,
            ProcessPoolExecutor(1, context) as executor,
        ):
            server = Server(Path(directory), count, scheduler=flags.scheduler)
            try:
                uvloop.run(measure(server, executor, flags, count))
            finally:
                server.stop()


if __name__ == "__main__":
    main()
