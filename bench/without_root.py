"""Costs of pods at each level: as root (full), as an ordinary user (userns), in a container without
privileges (plain).

Run as root, which becomes the ordinary user and makes the container. The figures of one run have
the same load of the machine, which is printed; compare them with one another. Processor time says
more than elapsed time on a busy machine.

    bench/without_root.py [--pods N] [--seconds N] [--levels full userns plain]
    bench/without_root.py --levels --ways forwarder pasta slirp4netns

With --ways, it compares how pods of an ordinary user reach the outside, here a server at an address
of this machine. pasta and slirp4netns take a /dev/net/tun that this user may open.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from cluster import home
from pods import PARTS, PODS, Connection, Machine, Pods, processor_time, resident, watching

from kedge.node.network.uplink import ANNOTATION as WAY_OUT
from kedge.node.network.uplink_trial import machine_address

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "full": [sys.executable],
    "userns": [str(ROOT / "tools/as_ordinary_user")],
    "plain": [str(ROOT / "tools/in_plain_container")],
}
WAYS = ("forwarder", "pasta", "slirp4netns")
PROGRAMS = ("passt", "pasta", "slirp4netns")
"""The names of their processes."""
SERVICES = PODS.replace("/pods", "/services")
CONNECTIONS = 300
MEGABYTES = 64
CPU_LIMIT = 0.25
PATIENCE = 120.0
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}

SERVER = f"""
import os, socket, threading
def serve(made):
    with made:
        made.sendall(b"x" if made.recv(1) == b"l" else bytes({MEGABYTES} << 20))
listener = socket.create_server((os.environ["POD_IP"], 7000), backlog=128)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"""
CLIENT = f"""
import json, os, socket, statistics, time
place = os.environ["ECHO_SERVICE_HOST"], int(os.environ["ECHO_SERVICE_PORT"])
def ask(word):
    began, size = time.perf_counter(), 0
    with socket.create_connection(place, 30) as made:
        made.sendall(word)
        while piece := made.recv(1 << 20):
            size += len(piece)
    assert size, "nothing answers"
    return time.perf_counter() - began
for attempt in range(100):
    try:
        ask(b"l")
        break
    except (OSError, AssertionError):
        time.sleep(0.1)
times = sorted(ask(b"l") for _ in range({CONNECTIONS}))
speed = {MEGABYTES} / ask(b"t")
found = dict(p50=1000 * statistics.median(times), p99=1000 * times[-len(times) // 100], speed=speed)
open("/dev/termination-log", "w").write(json.dumps(found))
"""
BUSY = """
import time
def work(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
work(2)
used, began = time.process_time(), time.monotonic()
work({seconds})
open("/dev/termination-log", "w").write(
    str((time.process_time() - used) / (time.monotonic() - began)))
"""


def main() -> None:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--pods", type=int, default=20, help="pods to start one by one")
    flags.add_argument("--seconds", type=float, default=10.0, help="seconds of a limited program")
    flags.add_argument("--levels", nargs="*", choices=COMMANDS, default=list(COMMANDS))
    flags.add_argument("--ways", nargs="*", choices=WAYS, default=[])
    flags.add_argument("--measure", action="store_true", help="measure the level of this process")
    given = flags.parse_args()
    if given.measure:
        found = outside(given.ways[0]) if given.ways else measure(given.pods, given.seconds)
        print(json.dumps(found))
        return
    _print({level: _measured(level, given) for level in given.levels})
    _print({way: _measured_way(way) for way in given.ways})


def _print(rows: dict[str, dict[str, float]]) -> None:
    if not rows:
        return
    print(f"load of the machine: {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors")
    print(f"{'':34}" + "".join(f"{level:>12}" for level in rows))
    for name in next(iter(rows.values())):
        print(f"{name:34}" + "".join(f"{row[name]:12.2f}" for row in rows.values()))


def _measured(level: str, given: argparse.Namespace) -> dict[str, float]:
    found = _told(level, f"--pods={given.pods}", f"--seconds={given.seconds}")
    if (actual := found.pop("level")) != level:
        sys.exit(f"this machine gives {actual}, not {level}")
    return found


def _measured_way(way: str) -> dict[str, float]:
    found = _told("userns", "--ways", way)
    if (actual := found.pop("way")) != way:
        sys.exit(f"this machine gives {actual}, not {way}")
    return found


def _told(level: str, *flags: str) -> dict[str, Any]:
    """Return the figures of a process with the rights of a level."""
    done = subprocess.run(
        [*COMMANDS[level], __file__, "--measure", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(count: int, seconds: float) -> dict[str, Any]:
    """Return the figures of a cluster of this process."""
    with home() as place:
        place.up("sqlite", "--nodes=1")
        cluster = place.running()
        api = Connection(cluster)
        (node,) = api.call("GET", "/api/v1/nodes")["items"]
        with watching(cluster) as pods:
            machine = Machine(place, cluster)
            sleep(1)
            return {
                "level": node["metadata"]["labels"]["kedge.dev/level"],
                **starts(pods, machine, count),
                **service(api),
                **limited(api, seconds),
            }


def outside(way: str) -> dict[str, Any]:
    """Return latency, throughput and processor time of connections to the outside, by one way."""
    with home() as place, _serving() as port:
        place.up("sqlite", "--nodes=1", f"--way-out={way}")
        cluster = place.running()
        api = Connection(cluster)
        actual, until = "", perf_counter() + PATIENCE
        while not actual and perf_counter() < until:
            (node,) = api.call("GET", "/api/v1/nodes")["items"]
            actual = node["metadata"]["annotations"].get(WAY_OUT, "")
            sleep(0.1)
        sleep(1)
        carriers = _with_children(Machine(place, cluster).pids["agent"])
        before = sum(map(processor_time, carriers))
        there = [
            {"name": "ECHO_SERVICE_HOST", "value": machine_address()},
            {"name": "ECHO_SERVICE_PORT", "value": str(port)},
        ]
        found = json.loads(ended(api, "client", CLIENT, env=there))
        spent = sum(map(processor_time, carriers)) - before
        return {
            "way": actual.partition(" ")[0],
            "outside, connection p50 ms": found["p50"],
            "outside, connection p99 ms": found["p99"],
            "outside, MB/s": found["speed"],
            "cpu ms of agent and program": spent,
            "memory of the program, MB": sum(map(resident, carriers[1:])),
        }


@contextlib.contextmanager
def _serving() -> Iterator[int]:
    """Serve on the machine, as the pod of a Service does; yields the port."""

    def serve(made: socket.socket) -> None:
        with made, contextlib.suppress(OSError):
            made.sendall(b"x" if made.recv(1) == b"l" else bytes(MEGABYTES << 20))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server((machine_address(), 0), backlog=128) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])


def _with_children(pid: int) -> list[int]:
    """Return a process, and the program for the way out if it started one."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(each) for file in lists for each in file.read_text().split()]
    names = {each: Path(f"/proc/{each}/comm").read_text().strip() for each in children}
    return [pid, *(each for each, name in names.items() if name.startswith(PROGRAMS))]


def starts(pods: Pods, machine: Machine, count: int) -> dict[str, float]:
    """Return what the start of a pod takes, and the memory of kedge for each."""
    before, memory, taken = machine.spent(), machine.resident(), []
    for _ in range(count):
        name, began = pods.create("exec sleep 1000")
        taken.append(1000 * (pods.when(name, "Running") - began))
    after = machine.spent()
    sleep(2)
    grown = sum(machine.resident().values()) - sum(memory.values())
    spent = {f"cpu ms per pod, {part}": (after[part] - before[part]) / count for part in PARTS}
    return {
        "create to Running, p50 ms": statistics.median(taken),
        **spent,
        "memory of kedge per pod, KB": 1024 * grown / count,
    }


def service(api: Connection) -> dict[str, float]:
    """Return latency and throughput of connections through a Service."""
    ports = [{"port": 7000, "targetPort": 7000}]
    spec = {"selector": {"app": "echo"}, "ports": ports}
    api.call("POST", SERVICES, {"metadata": {"name": "echo"}, "spec": spec})
    run(api, "server", SERVER, env=[POD_IP])
    found = json.loads(ended(api, "client", CLIENT))
    return {
        "Service, connection p50 ms": found["p50"],
        "Service, connection p99 ms": found["p99"],
        "Service, MB/s": found["speed"],
    }


def limited(api: Connection, seconds: float) -> dict[str, float]:
    """Return the processor time of a busy program with a limit, and of one without a limit at the
    same time: a limit promises no more than a busy machine has to give."""
    limits = {"limits": {"cpu": f"{int(1000 * CPU_LIMIT)}m"}}
    script = BUSY.replace("{seconds}", str(seconds))
    run(api, "free", script, resources={"requests": limits["limits"]})
    run(api, "busy", script, resources=limits)
    used, free = (float(message(api, name)) for name in ("busy", "free"))
    return {
        "cpu of a 250m limit, %": 100 * used / CPU_LIMIT,
        "the same without the limit, %": 100 * free / CPU_LIMIT,
        "cpu of the lesser of the two, %": 100 * used / min(CPU_LIMIT, free),
    }


def run(api: Connection, name: str, script: str, **container: Any) -> None:
    command = ["python3", "-c", script]
    main = {"name": "main", "image": "host", "command": command, **container}
    spec = {"containers": [main], "restartPolicy": "Never"}
    metadata = {"name": name, "labels": {"app": "echo" if name == "server" else name}}
    api.call("POST", PODS, {"metadata": metadata, "spec": spec})


def ended(api: Connection, name: str, script: str, **container: Any) -> str:
    """Run a script to its end; return its message."""
    run(api, name, script, **container)
    return message(api, name)


def message(api: Connection, name: str) -> str:
    """Return the message of a script at its end."""
    until = perf_counter() + PATIENCE
    while perf_counter() < until:
        status = api.call("GET", f"{PODS}/{name}")["status"]
        if status.get("phase") == "Succeeded":
            return str(status["containerStatuses"][0]["state"]["terminated"]["message"])
        if status.get("phase") == "Failed":
            raise RuntimeError(f"{name} failed: {status}")
        sleep(0.1)
    raise RuntimeError(f"{name} has not ended after {PATIENCE:g} s")


if __name__ == "__main__":
    main()
