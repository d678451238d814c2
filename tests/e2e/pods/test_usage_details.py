"""Disk, network, throttling, OOM kills and page faults of pods that really do it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Api, Cluster

Json = dict[str, Any]

SLOW = 80.0
"""Seconds: details are measured once in ten seconds, storage once in a minute."""
SPIN = "while True: pass"
WRITE = """
import os, time
open("/data/kept", "wb").write(bytes(8 << 20))
while True:
    with open("/data/file", "wb") as file:
        file.write(os.urandom(1 << 20)); file.flush(); os.fsync(file.fileno())
    time.sleep(0.2)
"""
TALK = """
import socket, struct, time
routes = [line.split() for line in open("/proc/net/route")][1:]
gateway = next(each[2] for each in routes if each[1] == "00000000")
where = socket.inet_ntoa(struct.pack("<I", int(gateway, 16)))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
    while True:
        to.sendto(b"x" * 1000, (where, 9)); time.sleep(0.02)
"""
STARVE = """
import os, time
while True:
    if not os.fork():
        open("/proc/self/oom_score_adj", "w").write("1000")
        kept = bytearray(b"x") * (200 << 20)
        os._exit(0)
    os.wait(); time.sleep(1)
"""
UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "Ki": 1024, "Mi": 1 << 20, "Gi": 1 << 30, "k": 1e3}


def number(text: str) -> float:
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)


def run(pods: Any, name: str, program: str, limits: Json, **spec: Any) -> None:
    container = {"command": ["python3", "-c", program], "resources": {"limits": limits}}
    container |= spec.pop("container", {})
    pods.create(name, container=container, **spec)


def used(api: Api, namespace: str, name: str) -> dict[str, float]:
    """The maxima of the last minute; nothing before the first report."""
    path = f"/apis/metrics/v1alpha1/namespaces/{namespace}/pods/{name}"
    if not api.serves(path):
        return {}
    windows = api.get(path)["containers"][0]["metrics"]
    return {resource: number(each) for resource, each in windows["1m"]["max"].items()}


def kedge(cluster: Cluster, *words: str) -> str:
    command = [sys.executable, "-m", "kedge", *words]
    environment = cluster.environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(180)
def test_details_of_pods_that_work_are_measured_and_explained(
    api: Api,
    cluster: Cluster,
    namespace: str,
    pods: Any,
    full_level: None,
    eventually: Callable[..., Any],
) -> None:
    run(pods, "spinner", SPIN, {"cpu": "50m"})
    run(pods, "talker", TALK, {})
    run(pods, "hungry", STARVE, {"memory": "64Mi"})
    run(
        pods,
        "writer",
        WRITE,
        {},
        volumes=[{"name": "data", "emptyDir": {}}],
        container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    )

    def exceeds(name: str, **least: float) -> bool:
        found = used(api, namespace, name)
        return all(found.get(key.replace("_", "-"), 0) >= amount for key, amount in least.items())

    eventually(lambda: exceeds("spinner", cpu_throttled=0.5), SLOW)
    eventually(lambda: exceeds("talker", network_transmit=2_000, network_receive=100), SLOW)
    eventually(lambda: exceeds("hungry", oom_kills=0.01, page_faults=100), SLOW)
    eventually(lambda: exceeds("writer", disk_write=100_000, ephemeral_storage=4 << 20), SLOW)

    where = ("-n", namespace)
    explained = kedge(cluster, "why", "spinner", "--slow", *where)
    assert "Container main is throttled: its cpu limit holds it back." in explained
    assert f"kubectl -n {namespace} patch pod spinner --subresource resize" in explained
    assert "ran out of memory and was killed" in kedge(cluster, "why", "hungry", "--slow", *where)
    heading, *rows = kedge(cluster, "top", "pods", "-o", "wide", "--once", *where).splitlines()
    assert heading.split()[-7:] == ["DISK", "READ", "WRITE", "RECEIVE", "SEND", "THROTTLED", "NODE"]
    (spinner,) = (row for row in rows if row.startswith("spinner"))
    assert spinner.split()[-2].endswith("%")


@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="the kernel has no PSI")
def test_the_pressure_of_the_machine_is_measured(api: Api, eventually: Callable[..., Any]) -> None:
    def pressed() -> bool:
        nodes = api.get("/apis/metrics/v1alpha1/nodes")["items"]
        return bool(nodes) and "cpu-pressure-some" in nodes[0]["machine"]["1m"]["mean"]

    eventually(pressed, SLOW)
