"""Costs of pods at each level: as root (full), as an ordinary user (userns), in a container without
privileges (plain).

Run as root, which becomes the ordinary user and makes the container. The figures of one run have
the same load of the machine, which is printed; compare them with one another. Processor time says
more than elapsed time on a busy machine.

    bench/without_root.py [--pods N] [--seconds N] [--levels full userns plain]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from cluster import home
from pods import PARTS, PODS, Connection, Machine, Pods, watching

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "full": [sys.executable],
    "userns": [str(ROOT / "tools/as_ordinary_user")],
    "plain": [str(ROOT / "tools/in_plain_container")],
}
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
    flags.add_argument("--measure", action="store_true", help="measure the level of this process")
    given = flags.parse_args()
    if given.measure:
        print(json.dumps(measure(given.pods, given.seconds)))
        return
    rows = {level: _measured(level, given) for level in given.levels}
    print(f"load of the machine: {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors")
    print(f"{'':34}" + "".join(f"{level:>12}" for level in rows))
    for name in next(iter(rows.values())):
        print(f"{name:34}" + "".join(f"{row[name]:12.2f}" for row in rows.values()))


def _measured(level: str, given: argparse.Namespace) -> dict[str, float]:
    own = [__file__, "--measure", f"--pods={given.pods}", f"--seconds={given.seconds}"]
    done = subprocess.run(
        [*COMMANDS[level], *own], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if (actual := found.pop("level")) != level:
        sys.exit(f"this machine gives {actual}, not {level}")
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
