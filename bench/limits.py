"""What LimitRanges cost a create: pods in a namespace with ten of them, and in one with none.

The server runs in this process on a store in memory, so that neither disk nor network hides
anything. The namespaces take turns, create by create, and store the same pod: one that says its
limits itself, or is given them. At most a tenth is the bar.

    bench/limits.py [--pods N]
"""

import argparse
import asyncio
import gc
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Any

import msgspec

from kedge.apiserver.config import ServerConfig
from kedge.apiserver.server import Running, serve
from kedge.machinery.clock import SystemClock
from kedge.web.message import HttpRequest, Response

BAR = 10.0
RANGES = 10
ADMISSION = ("NamespaceLifecycle", "LimitRanger", "Priority", "DefaultTolerationSeconds")
SPOKEN = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}
SILENT = {"requests": {"cpu": "100m", "memory": "64Mi"}}
GIVEN = {**SILENT, "limits": {"cpu": "500m", "memory": "128Mi"}}
"""What the silent one is given."""
PODS = {"says all itself": (SPOKEN, SPOKEN), "is given its limits": (GIVEN, SILENT)}
"""What is posted where there are no LimitRanges, and where there are; the same is stored."""


def limit_range(number: int) -> dict[str, Any]:
    """One of several, each with bounds of its own on containers and on pods."""
    bounds = {
        "min": {"cpu": f"{number + 1}m", "memory": f"{number + 1}Mi"},
        "max": {"cpu": f"{number + 2}", "memory": f"{number + 2}Gi"},
    }
    ratio = {"maxLimitRequestRatio": {"cpu": str(number + 10)}}
    given = {"default": {"cpu": "500m", "memory": "128Mi"}}
    items = [{"type": "Container", **bounds, **ratio, **given}, {"type": "Pod", **bounds}]
    return {"metadata": {"name": f"limits-{number}"}, "spec": {"limits": items}}


def pod(name: str, resources: dict[str, Any]) -> dict[str, Any]:
    own_name = {"fieldRef": {"fieldPath": "metadata.name"}}
    containers = [
        {
            "name": f"c{number}",
            "image": "busybox:1",
            "command": ["sh", "-c", "sleep 3600"],
            "env": [{"name": "A", "value": "1"}, {"name": "NAME", "valueFrom": own_name}],
            "resources": resources,
        }
        for number in range(2)
    ]
    labels = {"app": "bench", "tier": "front"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}


async def post(server: Running, path: str, document: object) -> int:
    """Create something; nanoseconds."""
    headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json"}
    request = HttpRequest("POST", path, "", headers, msgspec.json.encode(document))
    began = perf_counter_ns()
    answer = server.app.handle(request)
    response = answer if isinstance(answer, Response) else await answer
    taken = perf_counter_ns() - began
    if response.status != 201:
        sys.exit(f"POST {path}: {response.status} {response.body!r}")
    return taken


async def prepare(server: Running) -> None:
    for namespace, ranges in (("none", 0), ("ten", RANGES)):
        await post(server, "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for number in range(ranges):
            path = f"/api/v1/namespaces/{namespace}/limitranges"
            await post(server, path, limit_range(number))


async def measure(server: Running, name: str, pods: int) -> float:
    """How many per cent more a create takes where there are LimitRanges."""
    taken: dict[str, list[int]] = {"none": [], "ten": []}
    for number in range(pods):
        posted = dict(zip(taken, PODS[name], strict=True))
        # Who goes first changes, for whoever does finds colder caches.
        for namespace in sorted(taken, reverse=bool(number % 2)):
            path = f"/api/v1/namespaces/{namespace}/pods"
            document = pod(f"{name.replace(' ', '-')}-{number}", posted[namespace])
            taken[namespace].append(await post(server, path, document))
    without, with_ = (median(times) / 1000 for times in taken.values())
    more = (with_ / without - 1) * 100
    print(f"{name:24}{without:12.0f}{with_:12.0f}{more:11.1f} %")
    return more


async def main(pods: int) -> int:
    with TemporaryDirectory(prefix="kedge-bench-") as state:
        config = ServerConfig(state=Path(state), port=0, store="memory", admission=ADMISSION)
        async with serve(config, SystemClock()) as server:
            await prepare(server)
            gc.collect()
            gc.disable()
            print(f"{'a pod that':24}{'none, us':>12}{'ten, us':>12}{'more':>13}")
            worst = max([await measure(server, name, pods) for name in PODS])
    print(f"at most {BAR:.0f} % more: {'kept' if worst <= BAR else 'MISSED'}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    flags.add_argument("--pods", type=int, default=2000, help="pods of each sort (default: 2000)")
    sys.exit(asyncio.run(main(flags.parse_args().pods)))
