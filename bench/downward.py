"""Measure the delay of downward API volumes: from the API write to the new content of the file.

A pod on a real node watches files with its own labels, annotations and limits, which change in
turn, and records when it sees a change. The median must be within the bar. Then the benchmark
measures the cost of resolving one variable.

    bench/downward.py [--changes N]
"""

import argparse
import http.client
import json
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns, sleep, time_ns
from typing import Any
from urllib.parse import urlsplit

from cluster import Cluster, home

from kedge.api.core_v1.pod.pod import RESOURCE
from kedge.machinery.quantity import Quantity
from kedge.node.pod.environment import downward
from kedge.node.pod.environment.downward import DownwardContext

BAR_MS = 100.0
BAR_US = 20.0
PATIENCE = 20.0
POD = "/api/v1/namespaces/default/pods/reader"
SELECTOR = 'spec.containers[?(@.name=="reader")].resources.limits.cpu'

READER = """
import os, time
seen = {}
with open("/out/seen", "a", buffering=1) as out:
    while True:
        for name in ("label", "annotation", "limit"):
            text = open("/info/" + name).read()
            if seen.get(name) != text:
                seen[name] = text
                print(name, text, time.time_ns(), file=out)
        time.sleep(0.0005)
"""


def reader(out: Path) -> dict[str, Any]:
    fields = {
        "label": "metadata.labels['turn']",
        "annotation": "metadata.annotations['turn']",
        "limit": SELECTOR,
    }
    items = [{"path": name, "fieldRef": {"fieldPath": path}} for name, path in fields.items()]
    container = {
        "name": "reader",
        "image": "host",
        "command": ["python3", "-c", READER],
        "resources": {
            "limits": {"cpu": "500m", "memory": "64Mi"},
            "requests": {"cpu": "100m", "memory": "64Mi"},
        },
        "volumeMounts": [
            {"name": "info", "mountPath": "/info"},
            {"name": "out", "mountPath": "/out"},
        ],
    }
    volumes = [
        {"name": "info", "downwardAPI": {"items": items}},
        {"name": "out", "hostPath": {"path": str(out)}},
    ]
    turn = {"turn": "begin"}
    return {
        "metadata": {"name": "reader", "labels": turn, "annotations": turn},
        "spec": {
            "containers": [container],
            "volumes": volumes,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        },
    }


class Api:
    """One connection to the server, kept open."""

    def __init__(self, cluster: Cluster) -> None:
        tls = ssl.create_default_context()
        # The bench has just started the server itself, on this machine.
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection(urlsplit(cluster.url).netloc, context=tls)
        self._token = cluster.token

    def __call__(self, method: str, path: str, body: object, sort: str = "json") -> None:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": f"application/{sort}",
        }
        self._connection.request(method, path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        if answer.status not in (200, 201):
            sys.exit(f"{method} {path}: {answer.status} {text}")

    def turn(self, name: str, number: int) -> str:
        """Change what one file tells; returns what it will say."""
        if name == "limit":
            milli = 500 + number
            limit = {"name": "reader", "resources": {"limits": {"cpu": f"{milli}m"}}}
            resized = {"spec": {"containers": [limit]}}
            self("PATCH", f"{POD}/resize", resized, "strategic-merge-patch+json")
            return str(milli * 1024 // 1000)
        changed = {"metadata": {f"{name}s": {"turn": f"t{number}"}}}
        self("PATCH", POD, changed, "merge-patch+json")
        return f"t{number}"


def awaited(seen: Path, wanted: Callable[[list[str]], bool]) -> list[str]:
    """The line that the container has written down."""
    deadline = time_ns() + int(PATIENCE * 1e9)
    while time_ns() < deadline:
        for line in reversed(seen.read_text().splitlines() if seen.exists() else []):
            words = line.split()
            if len(words) == 3 and wanted(words):
                return words
        sleep(0.002)
    sys.exit(f"the container has not seen it within {PATIENCE:.0f} s")


def measure(api: Api, seen: Path, changes: int) -> dict[str, list[float]]:
    """By file: milliseconds from before the write until the container read the new content."""
    taken: dict[str, list[float]] = {"label": [], "annotation": [], "limit": []}
    for number in range(1, changes + 1):
        for name, times in taken.items():
            began = time_ns()
            value = api.turn(name, number)
            words = awaited(seen, lambda w, n=name, v=value: w[:2] == [n, v])  # type: ignore[misc]
            times.append((int(words[2]) - began) / 1e6)
            # The node still reports on the last change; the next is to find it at rest.
            sleep(0.05)
    return taken


def follow(changes: int) -> bool:
    with home() as place, scratch() as out:
        place.up("sqlite")
        api = Api(place.running())
        api("POST", "/api/v1/namespaces/default/pods", reader(out))
        awaited(out / "seen", lambda words: words[0] == "limit")
        taken = measure(api, out / "seen", changes)
    print(f"{'a changed':24}{'p50, ms':>12}{'p90, ms':>12}{'worst, ms':>12}")
    for name, times in taken.items():
        tenths = quantiles(times, n=10)
        print(f"{name:24}{median(times):12.1f}{tenths[-1]:12.1f}{max(times):12.1f}")
    kept = all(median(times) < BAR_MS for times in taken.values())
    print(f"p50 under {BAR_MS:.0f} ms: {'kept' if kept else 'MISSED'}")
    return kept


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kedge-bench-out-") as directory:
        place = Path(directory)
        place.chmod(0o777)
        yield place


def resolve() -> bool:
    document = reader(Path("/out"))
    pod = RESOURCE.from_document(document)
    own = pod.spec.containers[0]
    around = DownwardContext(allocatable={"cpu": Quantity.parse("4")}, pod_ips=["10.0.0.1"])
    cases: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: downward.field(pod, "metadata.name", around),
        "metadata.labels['turn']": lambda: downward.field(pod, "metadata.labels['turn']", around),
        "a full selector": lambda: downward.field(pod, SELECTOR, around),
        "a partial selector": lambda: downward.container_field(
            pod, own, "resources.requests.memory", around
        ),
    }
    print(f"\n{'resolving':24}{'us':>12}")
    worst = 0.0
    for name, case in cases.items():
        began = perf_counter_ns()
        for _ in range(10_000):
            case()
        each = (perf_counter_ns() - began) / 10_000 / 1000
        worst = max(worst, each)
        print(f"{name:24}{each:12.2f}")
    print(f"under {BAR_US:.0f} us: {'kept' if worst < BAR_US else 'MISSED'}")
    return worst < BAR_US


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    flags.add_argument("--changes", type=int, default=50, help="of each file (default: 50)")
    results = [follow(flags.parse_args().changes), resolve()]
    sys.exit(0 if all(results) else 1)
