"""What a server spends on metrics: simulated nodes report through the real door, clients read.

Starts a server of its own, registers nodes and pods, has every node report once per interval with
a token of its own, and measures lists, selections and watches over TLS meanwhile.
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import re
import ssl
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kedge.api.metrics_v1alpha1 import frame as wire
from kedge.api.metrics_v1alpha1.frame import Frame, Measured, MeasuredPod
from kedge.machinery.clock import SystemClock

CLOCK = SystemClock()

PODS = "/apis/metrics/v1alpha1/pods"
USAGE = "/apis/metrics.k8s.io/v1beta1/pods"
SYSTEMS = ("kubelet", "runtime", "misc", "pods")


class Connection:
    """A kept connection that speaks just enough HTTP."""

    def __init__(self, port: int, token: str) -> None:
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
                "127.0.0.1", self._port, ssl=context, limit=1 << 24
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


class Server:
    """A server of our own."""

    def __init__(self, directory: Path, nodes: int) -> None:
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
        return int(re.search(r"https://127.0.0.1:(\d+)", known.read_text())[1])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Node:
    """A simulated node."""

    def __init__(self, server: Server, number: int, pods: Sequence[tuple[str, str]]) -> None:
        self.name = f"n{number}"
        self._connection = Connection(server.port, f"node-token-{number}")
        self.pods = pods
        self._random = random.Random(number)
        self._since = int(CLOCK.now().timestamp()) - 2 * 86400
        self._last = 0

    def frame(self, tick: int) -> bytes:
        count = 1 + len(SYSTEMS) + 2 * len(self.pods)
        at = 1 + len(SYSTEMS)
        since = self._since
        pods = [
            MeasuredPod(
                f"bench-{n}",
                name,
                uid,
                since,
                tick,
                at + n,
                [Measured("main", since, at + n + len(self.pods))],
            )
            for n, (name, uid) in enumerate(self.pods)
        ]
        uniform = self._random.random
        numbers = array("f")
        for _ in range(count * wire.WIDTH // 2):
            numbers.append(uniform())
            numbers.append(float(int(uniform() * 1e6) << 10))
        systems = [Measured(name, since, 1 + n) for n, name in enumerate(SYSTEMS)]
        return wire.encode(Frame(self.name, "u", tick, 10, since, systems, pods, numbers))

    def next_tick(self) -> int:
        self._last = max(int(CLOCK.now().timestamp()) // wire.TICK, self._last + 1)
        return self._last

    async def send(self, body: bytes) -> None:
        status, answer = await self._connection.request(
            "POST", wire.path_of(self.name), body, wire.CONTENT_TYPE
        )
        assert status == 200, answer

    async def report(self) -> None:
        """Report the latest tick."""
        await self.send(self.frame(self.next_tick()))


async def fill(server: Server, nodes: int, pods: int) -> list[Node]:
    """Register everything."""
    admin = Connection(server.port, server.token)

    async def create(connection: Connection, path: str, document: Any) -> Any:
        status, body = await connection.request("POST", path, json.dumps(document).encode())
        assert status == 201, body
        return json.loads(body)

    for each in range(pods):
        await create(admin, "/api/v1/namespaces", {"metadata": {"name": f"bench-{each}"}})

    async def one(number: int) -> Node:
        connection = Connection(server.port, server.token)
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
        return Node(server, number, made)

    found: list[Node] = []
    for start in range(0, nodes, 10):
        found += await asyncio.gather(*(one(n) for n in range(start, min(start + 10, nodes))))
    return found


async def reporting(nodes: Sequence[Node], interval: float) -> None:
    """Every node once per interval, evenly spread."""

    async def one(number: int, node: Node) -> None:
        await CLOCK.sleep(interval * number / len(nodes))
        begun = CLOCK.monotonic()
        while True:
            await node.report()
            begun += interval
            await CLOCK.sleep(max(0.0, begun - CLOCK.monotonic()))

    await asyncio.gather(*(one(*pair) for pair in enumerate(nodes)))


def reads(server: Server, path: str, calls: int) -> str:
    """Latencies of one read after the other."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
    times, size = [], 0
    before = server.cpu()
    for _ in range(calls):
        start = CLOCK.monotonic()
        connection.request("GET", path, headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        body = answer.read()
        times.append((CLOCK.monotonic() - start) * 1e3)
        assert answer.status == 200, body[:300]
        size = len(body)
    times.sort()
    cpu = (server.cpu() - before) / calls * 1e3
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    return (
        f"{size / 1e6:8.2f} MB   p50 {times[len(times) // 2]:7.2f}   p99 {p99:7.2f} ms"
        f"   {cpu:6.1f} CPU-ms each"
    )


async def read(server: Server, path: str, calls: int) -> str:
    return await asyncio.to_thread(reads, server, path, calls)


async def watch_lag(server: Server, nodes: Sequence[Node], watchers: int) -> str:
    """How long after a node's report the watchers of one namespace have heard of its pod there."""
    path = "/apis/metrics/v1alpha1/namespaces/bench-0/pods"
    _, nothing = await Connection(server.port, server.token).request(
        "GET", f"{path}?labelSelector=app%3Dnone"
    )
    version = json.loads(nothing)["metadata"]["resourceVersion"]
    lags: list[float] = []
    sent = 0.0
    told = asyncio.Event()

    async def follow(ready: asyncio.Barrier) -> None:
        reader, _ = await Connection(server.port, server.token).send(
            "GET", f"{path}?watch=true&resourceVersion={version}", b"", ""
        )
        await reader.readuntil(b"\r\n\r\n")
        await ready.wait()
        seen = 0
        while True:
            seen += (await reader.read(1 << 20)).count(b'"MODIFIED"')
            if seen:
                seen = 0
                lags.append((CLOCK.monotonic() - sent) * 1e3)
                if len(lags) % watchers == 0:
                    told.set()

    async with asyncio.TaskGroup() as group:
        ready = asyncio.Barrier(watchers + 1)
        tasks = [group.create_task(follow(ready)) for _ in range(watchers)]
        await ready.wait()
        for node in nodes:
            await CLOCK.sleep(0.3)
            told.clear()
            body = node.frame(node.next_tick())
            sent = CLOCK.monotonic()
            await node.send(body)
            await asyncio.wait_for(told.wait(), 10)
        for task in tasks:
            task.cancel()
    lags.sort()
    return f"p50 {lags[len(lags) // 2]:.1f}   p99 {lags[int(len(lags) * 0.99)]:.1f} ms"


async def measure(server: Server, flags: argparse.Namespace) -> None:
    nodes = await fill(server, flags.nodes, flags.pods)
    await CLOCK.sleep(3)
    idle = server.resident_mb()
    print(f"{flags.nodes} nodes x {flags.pods} pods; server with the pods {idle:.0f} MB")
    print(f"load average {os.getloadavg()[0]:.1f}")
    begun = server.cpu()
    await CLOCK.sleep(5)
    print(f"idling                   {(server.cpu() - begun) * 12:8.2f} CPU-s/min")
    begun = server.cpu()
    for node in nodes:
        await node.report()
    spent = server.cpu() - begun
    print(f"first reports            {spent / len(nodes) * 1e3:8.2f} CPU-ms each")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reporting(nodes, flags.interval))
        await CLOCK.sleep(flags.interval)
        before, start = server.cpu(), CLOCK.monotonic()
        await CLOCK.sleep(flags.seconds)
        rate = (server.cpu() - before) / (CLOCK.monotonic() - start) * 60
        print(f"reports every {flags.interval:g} s        {rate:8.2f} CPU-s/min, idling included")
        print(f"memory for them          {server.resident_mb() - idle:8.1f} MB")
        print("metrics.k8s.io, all     ", await read(server, USAGE, flags.calls))
        print("four windows, all       ", await read(server, PODS, flags.calls))
        some = f"{USAGE}?labelSelector=app%3Dapp-1"
        print("100 of them by label    ", await read(server, some, 300))
        print(f"memory after lists       {server.resident_mb() - idle:8.1f} MB")
        task.cancel()
    lag = await watch_lag(server, nodes[:10], flags.watchers)
    print(f"watch, {flags.watchers} watchers       ", lag)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=100, help="on each node")
    parser.add_argument("--interval", type=float, default=10, help="seconds between two reports")
    parser.add_argument("--seconds", type=float, default=30, help="how long reports are measured")
    parser.add_argument("--calls", type=int, default=60, help="of each list")
    parser.add_argument("--watchers", type=int, default=100)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kedge-bench-") as directory:
        server = Server(Path(directory), flags.nodes)
        try:
            asyncio.run(measure(server, flags))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
