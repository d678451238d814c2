"""Measure a large Deployment, and the cost of many idle ones; print a table with bars.

The nodes are simulated: Node objects, and a program that reports over the API that the pods bound
to them run. Everything else is real: the API over HTTPS, the store on disk, scheduler and
controllers. Processor time is that of the server, which includes the requests of the simulated
nodes. On a busy machine it says more than elapsed time.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from cluster import Cluster, Home, run

from kedge.api.apps_v1.deployment import RESOURCE as DEPLOYMENTS
from kedge.api.coordination_v1.lease import RESOURCE as LEASES
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.client import MERGE_PATCH, Client, DeletionOptions
from kedge.client.http import HttpTransport
from kedge.client.informer import Informer
from kedge.client.view import objects
from kedge.controllers.shared_informers import ObjectCache
from kedge.machinery.clock import SystemClock
from kedge.machinery.durations import format_micro_time, format_time
from kedge.machinery.errors import StatusError

PATIENCE = 600.0
HEARTBEAT = 10.0
clock = SystemClock()


NUMBERS = {
    "replicas": (500, "pods of the large Deployment"),
    "nodes": (50, "how many to simulate"),
    "workloads": (200, "how many Deployments to idle"),
    "idle": (20.0, "seconds to do nothing"),
}


async def measure(place: Home, flags: argparse.Namespace) -> None:
    cluster = place.running()
    async with simulated(place, cluster, flags.nodes) as nodes:
        await idle(cluster, nodes, "idle, no workloads", flags.idle)
        await large(cluster, nodes, flags.replicas)
        await many(cluster, nodes, flags.workloads)
        await idle(cluster, nodes, f"idle, {flags.workloads} Deployments", flags.idle, bar="1 %")


def show(what: str, figure: str, bar: str = "", rest: str = "") -> None:
    print(f"{what:32}{figure:>14}   {'< ' + bar if bar else '':8}{rest}", flush=True)


class SimulatedNodes:
    """Nodes that report each pod bound to them as running at once, and do nothing else."""

    def __init__(self, client: Client, count: int) -> None:
        self.client = client
        self.names = [f"simulated-{number}" for number in range(count)]
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.beating = True
        self._waiting: asyncio.Queue[Pod] = asyncio.Queue()
        self._changed = asyncio.Event()
        self.pods.follow(self._pod_changed)

    def _pod_changed(self, _: Pod | None, now: Pod | None) -> None:
        self._changed.set()
        if now is not None and now.spec.nodeName:
            self._waiting.put_nowait(now)

    async def run(self) -> None:
        informer = Informer(self.client, objects(PODS), self.pods, clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            tasks.create_task(self._beat())
            for _ in range(8):
                tasks.create_task(self._work())

    async def register(self) -> None:
        amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "Simulated"}
        for name in self.names:
            meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            await self.client.create(NODES, NODES.from_document({"metadata": meta}))
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
            await self.client.patch(NODES, name, {"status": status}, subresource="status")
            held = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _stamp()}
            lease = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": held}
            await self.client.create(LEASES, LEASES.from_document(lease))

    async def _beat(self) -> None:
        while True:
            await clock.sleep(HEARTBEAT)
            for name in self.names if self.beating else ():
                change = {"spec": {"renewTime": _stamp()}}
                await self.client.patch(LEASES, name, change, "kube-node-lease", form=MERGE_PATCH)

    async def _work(self) -> None:
        while True:
            pod = await self._waiting.get()
            try:
                await self._see_to(pod)
            except StatusError as error:
                if error.code not in (404, 409):
                    raise

    async def _see_to(self, pod: Pod) -> None:
        meta = pod.metadata
        if meta.deletionTimestamp:
            at_once = DeletionOptions(grace_period_seconds=0)
            await self.client.delete(PODS, meta.name, meta.namespace, options=at_once)
        elif pod.status.phase == "Pending":
            now = format_time(clock.now())
            conditions = [
                {"type": type_, "status": "True", "lastTransitionTime": now}
                for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ]
            status = {"phase": "Running", "startTime": now, "conditions": conditions}
            change = {"status": status}
            await self.client.patch(PODS, meta.name, change, meta.namespace, subresource="status")

    async def until(self, true: Callable[[], bool]) -> float:
        """When something had become true of the pods."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                self._changed.clear()
                await self._changed.wait()
        return perf_counter()


def _stamp() -> str:
    return format_micro_time(clock.now())


@asynccontextmanager
async def simulated(place: Home, cluster: Cluster, count: int) -> AsyncIterator[SimulatedNodes]:
    ca_pem = (place.state / "pki" / "ca.crt").read_bytes()
    client = Client(HttpTransport(cluster.url, ca_pem=ca_pem, token=cluster.token))
    nodes = SimulatedNodes(client, count)
    await nodes.register()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(nodes.run())
        yield nodes
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


async def large(cluster: Cluster, nodes: SimulatedNodes, replicas: int) -> None:
    show("server before", f"{cluster.resident_mb():.0f} MB")
    client, pods = nodes.client, nodes.pods
    phase = Phase(cluster)
    await client.create(DEPLOYMENTS, deployment("large", replicas))
    bound = await nodes.until(lambda: sum(bool(pod.spec.nodeName) for pod in pods) == replicas)
    show(f"{replicas} pods, all bound", f"{bound - phase.began:.2f} s")
    ready = await nodes.until(lambda: sum(map(is_ready, pods)) == replicas)
    await complete(client, "large", replicas)
    phase.show(f"{replicas} pods, all ready", ready)

    phase = Phase(cluster)
    change = {"spec": {"template": deployment_template("large", "two")}}
    await client.patch(DEPLOYMENTS, "large", change, "default")
    await complete(client, "large", replicas)
    only_new = await nodes.until(lambda: images(pods) == {"two"} and len(pods) == replicas)
    phase.show(f"{replicas} pods, all replaced", only_new)

    phase = Phase(cluster)
    await client.patch(DEPLOYMENTS, "large", {"spec": {"replicas": 0}}, "default")
    gone = await nodes.until(lambda: not len(pods))
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


async def many(cluster: Cluster, nodes: SimulatedNodes, count: int) -> None:
    phase = Phase(cluster)
    names = [f"idle-{number}" for number in range(count)]
    for name in names:
        await nodes.client.create(DEPLOYMENTS, deployment(name, 1))
    ready = await nodes.until(lambda: sum(map(is_ready, nodes.pods)) == count)
    for name in names:
        await complete(nodes.client, name, 1)
    phase.show(f"{count} Deployments, all ready", ready)


async def idle(
    cluster: Cluster, nodes: SimulatedNodes, what: str, seconds: float, *, bar: str = ""
) -> None:
    """Print the usage of the server without requests; the nodes are silent as well."""
    nodes.beating = False
    await clock.sleep(2)
    before = cluster.processor_seconds()
    await clock.sleep(seconds)
    share = (cluster.processor_seconds() - before) / seconds
    nodes.beating = True
    show(what, f"{share:.2%}", bar, f"of a core, {cluster.resident_mb():.0f} MB held")


if __name__ == "__main__":
    run(__doc__, NUMBERS, measure)
