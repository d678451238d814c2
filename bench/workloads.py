"""Measure a large Deployment, and the cost of many idle ones; print a table with bars.

The nodes are those of `--simulated-nodes`. Everything else is real: the API, the store on disk,
scheduler and controllers. Processor time is that of the server, which includes the simulation. On a
busy machine it says more than elapsed time.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from cluster import Cluster, Home, run

from kedge.api.apps_v1.deployment import RESOURCE as DEPLOYMENTS
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.client import Client
from kedge.client.http import HttpTransport
from kedge.client.informer import Informer
from kedge.client.view import objects
from kedge.controllers.shared_informers import ObjectCache
from kedge.machinery.clock import SystemClock

PATIENCE = 600.0
clock = SystemClock()


NUMBERS = {
    "replicas": (500, "pods of the large Deployment"),
    "nodes": (50, "how many to simulate"),
    "workloads": (200, "how many Deployments to idle"),
    "idle": (20.0, "seconds to do nothing"),
}


def up_flags(flags: argparse.Namespace) -> list[str]:
    return [f"--simulated-nodes={flags.nodes}", "--wait=300s", "--gateway=off"]


async def measure(place: Home, flags: argparse.Namespace) -> None:
    cluster = place.running()
    async with followed(place, cluster) as found:
        nodes = await idle(cluster, "idle, no workloads", flags.idle)
        await large(cluster, found, flags.replicas)
        await many(cluster, found, flags.workloads)
        both = await idle(cluster, f"idle, {flags.workloads} Deployments", flags.idle)
        show("more than without workloads", f"{both - nodes:.2%}", "1 %", "of a core")


def show(what: str, figure: str, bar: str = "", rest: str = "") -> None:
    print(f"{what:32}{figure:>14}   {'< ' + bar if bar else '':8}{rest}", flush=True)


class Followed:
    """A client of the cluster, and its pods as a watch shows them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pods: ObjectCache[Pod] = ObjectCache()
        self._changed = asyncio.Event()
        self.pods.follow(lambda _, __: self._changed.set())

    async def until(self, true: Callable[[], bool]) -> float:
        """When something had become true of the pods."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                self._changed.clear()
                await self._changed.wait()
        return perf_counter()


@asynccontextmanager
async def followed(place: Home, cluster: Cluster) -> AsyncIterator[Followed]:
    ca_pem = (place.state / "pki" / "ca.crt").read_bytes()
    client = Client(HttpTransport(cluster.url, ca_pem=ca_pem, token=cluster.token))
    found = Followed(client)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(Informer(client, objects(PODS), found.pods, clock).run())
        yield found
        running.cancel()
    await client.close()


def is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def deployment(name: str, replicas: int, image: str = "one") -> Any:
    labels = {"app": name}
    container = {"name": "main", "image": image}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": name, "namespace": "default"}
    return DEPLOYMENTS.from_document({"metadata": meta, "spec": spec})


class Phase:
    """A stretch of work: how long it took and what the server used meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cpu = cluster.processor_seconds()
        self.began = perf_counter()

    def show(self, what: str, end: float) -> None:
        cpu = self._cluster.processor_seconds() - self._cpu
        memory = f"{self._cluster.resident_mb():.0f} MB held"
        show(what, f"{end - self.began:.2f} s", rest=f"{cpu:.2f} s of processor, {memory}")


async def large(cluster: Cluster, found: Followed, replicas: int) -> None:
    show("server before", f"{cluster.resident_mb():.0f} MB")
    client, pods = found.client, found.pods
    phase = Phase(cluster)
    await client.create(DEPLOYMENTS, deployment("large", replicas))
    bound = await found.until(lambda: sum(bool(pod.spec.nodeName) for pod in pods) == replicas)
    show(f"{replicas} pods, all bound", f"{bound - phase.began:.2f} s")
    ready = await found.until(lambda: sum(map(is_ready, pods)) == replicas)
    await complete(client, "large", replicas)
    phase.show(f"{replicas} pods, all ready", ready)

    phase = Phase(cluster)
    change = {"spec": {"template": deployment_template("large", "two")}}
    await client.patch(DEPLOYMENTS, "large", change, "default")
    await complete(client, "large", replicas)
    only_new = await found.until(lambda: images(pods) == {"two"} and len(pods) == replicas)
    phase.show(f"{replicas} pods, all replaced", only_new)

    phase = Phase(cluster)
    await client.patch(DEPLOYMENTS, "large", {"spec": {"replicas": 0}}, "default")
    gone = await found.until(lambda: not len(pods))
    phase.show(f"{replicas} pods, all gone", gone)
    await client.delete(DEPLOYMENTS, "large", "default")


def deployment_template(name: str, image: str) -> Any:
    return DEPLOYMENTS.to_document(deployment(name, 0, image))["spec"]["template"]


def images(pods: ObjectCache[Pod]) -> set[str]:
    return {pod.spec.containers[0].image for pod in pods}


async def complete(client: Client, name: str, replicas: int) -> None:
    """Return when a Deployment says that its rollout is over."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await client.get(DEPLOYMENTS, name, "default")
            status = found.status
            counts = status.updatedReplicas, status.replicas, status.availableReplicas
            observed = status.observedGeneration >= found.metadata.generation
            if observed and counts == (replicas,) * 3:
                return
            await clock.sleep(0.2)


async def many(cluster: Cluster, found: Followed, count: int) -> None:
    phase = Phase(cluster)
    names = [f"idle-{number}" for number in range(count)]
    for name in names:
        await found.client.create(DEPLOYMENTS, deployment(name, 1))
    ready = await found.until(lambda: sum(map(is_ready, found.pods)) == count)
    for name in names:
        await complete(found.client, name, 1)
    phase.show(f"{count} Deployments, all ready", ready)


async def idle(cluster: Cluster, what: str, seconds: float) -> float:
    """Print and return the usage of the server without requests but those of its nodes."""
    await clock.sleep(5)
    before = cluster.processor_seconds()
    await clock.sleep(seconds)
    share: float = (cluster.processor_seconds() - before) / seconds
    show(what, f"{share:.2%}", rest=f"of a core, {cluster.resident_mb():.0f} MB held")
    return share


if __name__ == "__main__":
    run(__doc__, NUMBERS, measure, up_flags)
