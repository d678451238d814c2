"""How fast cluster DNS answers: over UDP, per core and per query, and the codec beside libraries.

The server runs in a process of its own, with a zone of so many Services with ten endpoints each.
Answers per second of one core are counted against the processor time of that process, so that a
busy machine or a slow client does not matter. If dnsperf is installed, it asks as well.
"""

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection

import uvloop

from kedge.api.discovery_v1.endpoint_slice import EndpointSlice
from kedge.dns.answer_cache import AnswerCache
from kedge.dns.cluster_index import ClusterIndex
from kedge.dns.message import build_response, parse_query
from kedge.dns.resolver import ClusterResolver
from kedge.dns.server import DnsServer
from kedge.dns.source_filter import SourceFilter
from kedge.dns.upstream import Upstream
from kedge.dns.upstream_servers import UpstreamServers
from kedge.dns.zone import ClusterZone
from kedge.machinery.clock import SystemClock
from kedge.testing.dns import loopback_sockets, new_service, new_slice

DOMAIN = "svc.cluster.local"
OUTSTANDING = 16
ENDPOINTS = 10


def filled(services: int) -> ClusterIndex:
    """Return an index: nine of ten Services have a cluster IP, the others are headless."""
    index = ClusterIndex()
    index.put_namespace("default")
    for number in range(services):
        name, place = f"web-{number}", f"{number >> 8}.{number & 255}"
        address = f"10.97.{place}" if number % 10 else "None"
        index.put_service(new_service(name, address))
        index.put_slice(slice_of(name, place))
    return index


def slice_of(name: str, place: str) -> EndpointSlice:
    return new_slice(name, *(f"10.{100 + each}.{place}" for each in range(ENDPOINTS)))


def zone_of(index: ClusterIndex) -> ClusterZone:
    return ClusterZone(index, "cluster.local", bytes([10, 96, 0, 10]), 1)


def query(name: str, kind: int = 1, identity: int = 0) -> bytes:
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    head = identity.to_bytes(2, "big") + b"\1\0\0\1\0\0\0\0\0\1"
    return head + labels + b"\0" + kind.to_bytes(2, "big") + b"\0\1" + b"\0\0\x29\4\xd0\0\0\0\0\0\0"


def serve(services: int, ready: Connection) -> None:
    async def run() -> None:
        clock = SystemClock()
        upstream = Upstream(UpstreamServers(list, [], clock), AnswerCache(clock), clock)
        resolver = ClusterResolver(zone_of(filled(services)), upstream)
        server = DnsServer(resolver, SourceFilter([], list, clock), clock)
        sockets = loopback_sockets()
        await server.serve(sockets)
        ready.send(sockets.port)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        server.close()

    uvloop.run(run())


@contextlib.contextmanager
def server(services: int) -> Iterator[tuple[int, Callable[[], float]]]:
    """Yield the port of a server, and a function that returns its processor time in seconds."""
    here, there = Pipe()
    process = Process(target=serve, args=(services, there))
    process.start()
    assert process.pid is not None
    pid = process.pid

    def used() -> float:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    try:
        yield here.recv(), used
    finally:
        process.terminate()
        process.join()


def connected(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(2)
    made.connect(("127.0.0.1", port))
    return made


def flood(port: int, names: list[str], seconds: float) -> int:
    """Ask with so many outstanding queries; return the number of answers."""
    queries = [query(name) for name in names]
    count, end = 0, time.monotonic() + seconds
    with connected(port) as client:
        for each in queries[:OUTSTANDING]:
            client.send(each)
        while time.monotonic() < end:
            client.recv(4096)
            count += 1
            client.send(queries[count % len(queries)])
    return count


def latencies(port: int, names: list[str], count: int) -> list[float]:
    found = []
    with connected(port) as client:
        for number in range(count):
            message = query(names[number % len(names)])
            begun = time.perf_counter()
            client.send(message)
            client.recv(4096)
            found.append(1000 * (time.perf_counter() - begun))
    return sorted(found)


def dnsperf(port: int, names: list[str], seconds: float) -> None:
    if not shutil.which("dnsperf"):
        print("dnsperf is not installed")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as data:
        data.write("".join(f"{name} A\n" for name in names))
        data.flush()
        command = ["dnsperf", "-s", "127.0.0.1", "-p", str(port), "-d", data.name]
        subprocess.run([*command, "-l", str(int(seconds) or 1)], check=True)


def rate(act: Callable[[], object], seconds: float) -> float:
    """Return how often something can be done in a second of processor time."""
    count, begun = 0, time.process_time()
    while (used := time.process_time() - begun) < seconds:
        for _ in range(100):
            act()
        count += 100
    return count / used


def codecs(seconds: float) -> Iterator[tuple[str, float]]:
    message = query(f"web-1.default.{DOMAIN}")
    zone = zone_of(filled(10))

    def own() -> None:
        asked = parse_query(message)
        assert asked is not None
        found = zone.find(asked.labels, asked.type)
        assert found is not None
        build_response(asked, found.answer, asked.size)

    yield "kedge, with the look-up", rate(own, seconds)
    with contextlib.suppress(ImportError):
        import dns.message
        import dns.rrset

        def dnspython() -> None:
            asked = dns.message.from_wire(message)
            made = dns.message.make_response(asked)
            name = asked.question[0].name
            made.answer.append(dns.rrset.from_text(name, 5, "IN", "A", "10.97.0.1"))
            made.to_wire()

        yield "dnspython", rate(dnspython, seconds)
    with contextlib.suppress(ImportError):
        import dnslib

        def other() -> None:
            asked = dnslib.DNSRecord.parse(message)
            made = asked.reply()
            made.add_answer(dnslib.RR(asked.q.qname, rdata=dnslib.A("10.97.0.1"), ttl=5))
            made.pack()

        yield "dnslib", rate(other, seconds)


def change(services: int, seconds: float) -> float:
    """Return the microseconds of one changed slice."""
    index = filled(services)
    made = [slice_of("web-0", place) for place in ("0.0", "9.9")]
    turn = iter(range(10**9))
    return 1e6 / rate(lambda: index.put_slice(made[next(turn) % 2]), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--services", type=int, default=1000)
    flags = parser.parse_args()
    # This file has the name of dnspython's package.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    names = [f"web-{number}.default.{DOMAIN}" for number in range(flags.services)]
    random.shuffle(names)
    with server(flags.services) as (port, used):
        before = used()
        count = flood(port, names, flags.seconds)
        spent = used() - before
        print(f"{flags.services} Services, {OUTSTANDING} outstanding queries:")
        print(f"  answers a second             {count / flags.seconds:10,.0f}")
        print(f"  answers a second of one core {count / spent:10,.0f}")
        found = latencies(port, names, 3000)
        middle, last = statistics.median(found), found[len(found) * 99 // 100]
        print(f"one after the other: p50 {middle:.3f} ms, p99 {last:.3f} ms")
        dnsperf(port, names, flags.seconds)
    print("parse a query and build its answer, per second of one core:")
    for name, per_second in codecs(flags.seconds / 3):
        print(f"  {name:28} {per_second:10,.0f}")
    for services in (10, flags.services):
        microseconds = change(services, flags.seconds / 3)
        what = f"one changed slice of {ENDPOINTS} endpoints among {services} Services"
        print(f"{what}: {microseconds:.0f} µs")


if __name__ == "__main__":
    main()
