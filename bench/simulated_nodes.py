"""Measure simulated nodes: many nodes, many pods of Deployments, their usage; print a table.

Everything but the containers is real: the API, the store on disk, scheduler and controllers. The
nodes are simulated in the process of the server, so its processor time and memory include them. On
a busy machine, processor time says more than elapsed time.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from cluster import Cluster, Home, run

from kedge.api.apps_v1.deployment import RESOURCE as DEPLOYMENTS
from kedge.api.apps_v1.deployment import Deployment
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.client.client import Client
from kedge.client.http import HttpTransport
from kedge.machinery.clock import SystemClock

PATIENCE = 3000.0
LOOK = 10.0
"""Seconds between two looks at the conditions of the nodes."""
POD_METRICS = "/apis/metrics.k8s.io/v1beta1/pods"
NAMESPACE = "default"
clock = SystemClock()

NUMBERS = {
    "nodes": (1000, "how many to simulate"),
    "pods": (30_000, "pods of all Deployments together; 0 for none"),
    "deployments": (30, "how many Deployments have these pods"),
    "single": (5000, "pods of one large Deployment, alone; 0 for none"),
    "idle": (30.0, "seconds to do nothing"),
    "delete": (1, "0 to end without a deletion of all pods"),
}


def up_flags(flags: argparse.Namespace) -> list[str]:
    return [f"--simulated-nodes={flags.nodes}", "--wait=300s", "--gateway=off"]


async def measure(place: Home, flags: argparse.Namespace) -> None:
    cluster = place.running()
    ca_pem = (place.state / "pki" / "ca.crt").read_bytes()
    client = Client(HttpTransport(cluster.url, ca_pem=ca_pem, token=cluster.token))
    try:
        await Bench(cluster, client, flags).run()
    finally:
        await client.close()


def show(what: str, figure: str, rest: str = "") -> None:
    load = Path("/proc/loadavg").read_text().split()[0]
    print(f"{what:34}{figure:>12}   {rest}  (load {load})", flush=True)


class Bench:
    """One run of all measurements."""

    def __init__(self, cluster: Cluster, client: Client, flags: argparse.Namespace) -> None:
        self._cluster = cluster
        self._client = client
        self._flags = flags
        self._unready: set[str] = set()
        """Nodes that were not Ready at some look."""

    async def run(self) -> None:
        flags = self._flags
        cpu = self._cluster.processor_seconds()
        memory = self._cluster.resident_mb()
        show(f"{flags.nodes} nodes registered", f"{cpu:.2f} s", f"of processor, {memory:.0f} MB")
        await self._idle(f"idle, {flags.nodes} nodes")
        if flags.single:
            await self._fill("single", 1, flags.single)
            await self._replace("single", flags.single)
            await self._empty("single", 1, flags.single)
        if flags.pods:
            await self._fill("web", flags.deployments, flags.pods)
            await self._idle(f"idle, {flags.pods} pods")
            await self._read_metrics(flags.pods)
            if flags.delete:
                await self._empty("web", flags.deployments, flags.pods)
        show("nodes that were not Ready", str(len(self._unready)), " ".join(self._unready))

    async def _idle(self, what: str) -> None:
        await clock.sleep(10)
        before = self._cluster.processor_seconds()
        await clock.sleep(self._flags.idle)
        share = (self._cluster.processor_seconds() - before) / self._flags.idle
        show(what, f"{share:.2%}", f"of a core, {self._cluster.resident_mb():.0f} MB")

    async def _fill(self, name: str, count: int, pods: int) -> None:
        """Create Deployments, and wait until all of their pods are ready."""
        memory, phase = self._cluster.resident_mb(), self._phase()
        for number in range(count):
            await self._client.create(DEPLOYMENTS, deployment(f"{name}-{number}", pods // count))
        await self._until(lambda found: ready(found) == pods // count * count)
        used, seconds = phase()
        grown = self._cluster.resident_mb() - memory
        show(
            f"{pods} pods in {count} Deployments",
            f"{seconds:.1f} s",
            f"to Ready, {used:.1f} s of processor, {1000 * used / pods:.2f} ms and"
            f" {1024 * grown / pods:.1f} KB each, {self._cluster.resident_mb():.0f} MB",
        )

    async def _replace(self, name: str, pods: int) -> None:
        """Change the template of a Deployment, and wait until all of its pods are new."""
        phase = self._phase()
        change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        await self._client.patch(DEPLOYMENTS, f"{name}-0", change, NAMESPACE)
        await self._until(lambda found: all(is_rolled_out(each, pods) for each in found))
        used, seconds = phase()
        show(
            f"{pods} pods replaced",
            f"{seconds:.1f} s",
            f"{used:.1f} s of processor, {1000 * used / pods:.2f} ms each,"
            f" {self._cluster.resident_mb():.0f} MB",
        )

    async def _read_metrics(self, pods: int) -> None:
        """Wait until the metrics API knows the usage of all pods, and time a list of them."""
        end = clock.monotonic() + PATIENCE
        while clock.monotonic() < end:
            began = perf_counter()
            found = await self._client.send("GET", POD_METRICS)
            seconds = perf_counter() - began
            usages = msgspec.json.decode(found.body)["items"]
            if len(usages) >= pods:
                show(f"metrics of {len(usages)} pods", f"{1000 * seconds:.0f} ms", "for the list")
                return
            await clock.sleep(5)
        raise TimeoutError("the metrics API does not know all pods")

    async def _empty(self, name: str, count: int, pods: int) -> None:
        """Delete the pods, and wait until they are gone."""
        phase = self._phase()
        for number in range(count):
            change = {"spec": {"replicas": 0}}
            await self._client.patch(DEPLOYMENTS, f"{name}-{number}", change, NAMESPACE)
        await self._until(lambda found: not any(each.status.replicas for each in found))
        used, seconds = phase()
        show(
            f"{pods} pods deleted",
            f"{seconds:.1f} s",
            f"{used:.1f} s of processor, {1000 * used / pods:.2f} ms each",
        )
        for number in range(count):
            await self._client.delete(DEPLOYMENTS, f"{name}-{number}", NAMESPACE)

    def _phase(self) -> Callable[[], tuple[float, float]]:
        """Begin a measurement; the result returns processor seconds and elapsed seconds."""
        cpu, began = self._cluster.processor_seconds(), perf_counter()
        return lambda: (self._cluster.processor_seconds() - cpu, perf_counter() - began)

    async def _until(self, done: Callable[[Sequence[Deployment]], bool]) -> None:
        """Return when that is true of the Deployments; note nodes that are not Ready meanwhile."""
        end, look = clock.monotonic() + PATIENCE, 0.0
        while clock.monotonic() < end:
            if done((await self._client.list(DEPLOYMENTS, NAMESPACE)).items):
                return
            if clock.monotonic() > look:
                look = clock.monotonic() + LOOK
                self._unready.update(await self._unready_now())
            await clock.sleep(0.5)
        raise TimeoutError(f"this took longer than {PATIENCE:.0f} s")

    async def _unready_now(self) -> set[str]:
        nodes = (await self._client.list(NODES)).items
        ready = {
            node.metadata.name
            for node in nodes
            for each in node.status.conditions
            if each.type == "Ready" and each.status == "True"
        }
        return {node.metadata.name for node in nodes} - ready


def ready(found: Sequence[Deployment]) -> int:
    return sum(each.status.readyReplicas or 0 for each in found)


def is_rolled_out(deployment: Deployment, pods: int) -> bool:
    status = deployment.status
    counts = status.updatedReplicas, status.replicas, status.availableReplicas
    return status.observedGeneration >= deployment.metadata.generation and counts == (pods,) * 3


def deployment(name: str, replicas: int) -> Any:
    labels = {"app": name}
    marks = {"simulation.kedge.dev/cpu": "100m..300m", "simulation.kedge.dev/memory": "64Mi"}
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    container = {"name": "main", "image": "app:1", "resources": resources}
    template = {
        "metadata": {"labels": labels, "annotations": marks},
        "spec": {"containers": [container]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": name, "namespace": NAMESPACE}
    return DEPLOYMENTS.from_document({"metadata": meta, "spec": spec})


if __name__ == "__main__":
    run(__doc__, NUMBERS, measure, up_flags)
