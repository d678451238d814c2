"""Measure how long claims take from create to Bound, and mounts of images; print a table with bars.

The class has the binding mode Immediate, so that no pod is part of the figure. Everything is real:
the API over HTTPS, the store on disk, and the controllers. Images are mounted in this process, as
root, by the driver that agents use.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from cluster import Cluster, Home, run

from kedge.api.core_v1.claim import PersistentVolumeClaimSpec, VolumeResourceRequirements
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.persistent_volume_claim import RESOURCE as CLAIMS
from kedge.api.core_v1.persistent_volume_claim import PersistentVolumeClaim
from kedge.api.model import Document, ObjectMeta
from kedge.api.storage_v1.local_volumes import LOCAL_DRIVER, LOCAL_PROVISIONER
from kedge.api.storage_v1.storage_class import CLASSES
from kedge.client.client import Client
from kedge.client.http import HttpTransport
from kedge.client.informer import Informer
from kedge.client.view import objects
from kedge.controllers.shared_informers import ObjectCache
from kedge.machinery.clock import SystemClock
from kedge.machinery.quantity import Quantity
from kedge.node.storage import volume_image
from kedge.node.storage.local_driver import ENFORCE, LocalDriver
from kedge.node.storage.local_store import LocalVolumeStore
from kedge.node.storage.volume_driver import DriverVolume, MountContext

PATIENCE = 120.0
SIZE = {"storage": Quantity.of("1Mi")}
clock = SystemClock()


NUMBERS = {
    "claims": (50, "claims to make one after another"),
    "burst": (100, "claims to make at once"),
    "mounts": (50, "mounts of an image"),
}


async def measure(place: Home, flags: argparse.Namespace) -> None:
    cluster: Cluster = place.running()
    ca_pem = (place.state / "pki" / "ca.crt").read_bytes()
    client = Client(HttpTransport(cluster.url, ca_pem=ca_pem, token=cluster.token))
    known: ObjectCache[PersistentVolumeClaim] = ObjectCache()
    async with asyncio.TaskGroup() as tasks:
        informer = Informer(client, objects(CLAIMS), known, clock)
        following = tasks.create_task(informer.run())
        await informer.synced.wait()
        await prepare(client)
        one_by_one = [await bound(client, known, f"one-{i}") for i in range(flags.claims)]
        show("claim to Bound", one_by_one, "50 ms")
        begun, used = perf_counter(), cluster.processor_seconds()
        names = [f"burst-{i}" for i in range(flags.burst)]
        together = await asyncio.gather(*(bound(client, known, name) for name in names))
        show(f"{flags.burst} claims at once", together)
        print(f"{'all of them':32}{(perf_counter() - begun) * 1000:>8.0f} ms")
        each = (cluster.processor_seconds() - used) / max(flags.burst, 1)
        print(f"{'processor time of each':32}{each * 1000:>8.1f} ms")
        following.cancel()
    await client.close()
    if why := volume_image.lack():
        print(f"no mounts of images: {why}")
    else:
        await measure_mounts(place.state / "bench-volumes", flags.mounts)


async def measure_mounts(directory: Path, times: int) -> None:
    """Mount an image that has data, and unmount it, again and again."""
    driver = LocalDriver(
        LocalVolumeStore(directory / "volumes"),
        may_mount=True,
        shortfall=lambda volume, reason: None,
        mark=unmarked,
    )
    staging, target = directory / "staged", directory / "target"
    volume = DriverVolume(LOCAL_DRIVER, "v", "v", attributes={ENFORCE: "true"}, size=64 << 20)
    seconds: dict[str, list[float]] = {"mount of an image": [], "unmount of an image": []}
    for _ in range(times + 1):
        staging.mkdir(parents=True, exist_ok=True)
        begun = perf_counter()
        await driver.stage(volume, staging, MountContext())
        await driver.publish(volume, staging, target, MountContext())
        mounted = perf_counter()
        await driver.unpublish("v", target)
        await driver.unstage("v", staging)
        seconds["mount of an image"].append(mounted - begun)
        seconds["unmount of an image"].append(perf_counter() - mounted)
    # The first mount makes the file system.
    for what, bar in (("mount of an image", "10 ms"), ("unmount of an image", "")):
        show(what, seconds[what][1:], bar)


async def unmarked(volume: DriverVolume) -> None:
    """Record nothing: there is no object of the volume."""


async def prepare(client: Client) -> None:
    """Make a node that volumes can be on, and a class that does not wait for pods."""
    labels = {"kubernetes.io/hostname": "simulated"}
    await client.create(NODES, Node(metadata=ObjectMeta(name="simulated", labels=labels)))
    content = {"provisioner": LOCAL_PROVISIONER, "volumeBindingMode": "Immediate"}
    await client.create(CLASSES, Document(metadata=ObjectMeta(name="now"), content=content))


async def bound(client: Client, known: ObjectCache[PersistentVolumeClaim], name: str) -> float:
    """Return the seconds from the create of a claim until a client sees that it is bound."""
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PersistentVolumeClaimSpec(
            accessModes=["ReadWriteOnce"],
            storageClassName="now",
            resources=VolumeResourceRequirements(requests=SIZE),
        ),
    )
    begun = perf_counter()
    await client.create(CLAIMS, claim)
    async with asyncio.timeout(PATIENCE):
        while (found := known.get(name, "default")) is None or found.status.phase != "Bound":
            await clock.sleep(0.001)
    return perf_counter() - begun


def show(what: str, seconds: Sequence[float], bar: str = "") -> None:
    ordered = sorted(seconds)
    median, most = ordered[len(ordered) // 2] * 1000, ordered[-1] * 1000
    text = f"{what:32}{median:>8.1f} ms p50{most:>8.1f} ms max"
    print(f"{text}   < {bar}" if bar else text, flush=True)


if __name__ == "__main__":
    run(__doc__, NUMBERS, measure)
