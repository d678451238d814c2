"""ResourceSlices are as the driver wants them, whoever changes them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.model import ObjectMeta
from kedge.api.resource_v1 import resource_slice
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.dra import Device, DeviceAttribute
from kedge.dra.slices import SlicePublisher, chunks
from kedge.testing.local_server import LocalServer


class Bench:
    """A publisher whose devices the test sets."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.devices = [Device(name="a"), Device(name="b")]
        self.publisher = SlicePublisher(
            server.client, "d.example.com", "n", lambda: self.devices, server.clock
        )

    async def settle(self) -> None:
        for _ in range(5):
            await self.server.clock.advance(1)

    async def slices(self) -> list[ResourceSlice]:
        await self.settle()
        found = await self.server.client.list(resource_slice.RESOURCE)
        return sorted(found.items, key=lambda each: each.metadata.name)

    async def seen(self) -> list[Any]:
        return [
            (
                each.spec.pool.generation,
                each.spec.pool.resourceSliceCount,
                [device.name for device in each.spec.devices],
            )
            for each in await self.slices()
        ]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with LocalServer.running() as server:
        await server.client.create(node.RESOURCE, Node(metadata=ObjectMeta(name="n")))
        made = Bench(server)
        task = asyncio.ensure_future(made.publisher.run())
        await made.settle()
        yield made
        task.cancel()
        await asyncio.wait([task])


async def test_devices_are_published_in_a_pool_of_the_node(bench: Bench) -> None:
    (found,) = await bench.slices()
    assert bench.publisher.published.is_set()
    assert found.metadata.name.startswith("n-d.example.com-")
    assert (found.spec.driver, found.spec.nodeName) == ("d.example.com", "n")
    assert (found.spec.pool.name, found.spec.pool.generation) == ("n", 1)
    (owner,) = found.metadata.ownerReferences
    assert (owner.kind, owner.name) == ("Node", "n")


async def test_a_change_is_a_new_generation(bench: Bench) -> None:
    bench.devices = [Device(name="c")]
    bench.publisher.wake()
    assert await bench.seen() == [(2, 1, ["c"])]
    bench.publisher.wake()
    assert await bench.seen() == [(2, 1, ["c"])]


async def test_deleted_slices_come_back(bench: Bench) -> None:
    await bench.server.client.delete_collection(resource_slice.RESOURCE)
    assert [devices for _, _, devices in await bench.seen()] == [["a", "b"]]


async def test_slices_that_others_changed_are_restored(bench: Bench) -> None:
    (found,) = await bench.slices()
    change = {"spec": {"devices": [{"name": "x"}]}}
    await bench.server.client.patch(resource_slice.RESOURCE, found.metadata.name, change)
    assert [devices for _, _, devices in await bench.seen()] == [["a", "b"]]


async def test_many_devices_are_several_slices_of_one_generation(bench: Bench) -> None:
    bench.devices = [Device(name=f"d-{i:03}") for i in range(300)]
    bench.publisher.wake()
    found = await bench.seen()
    assert [(generation, count) for generation, count, _ in found] == [(2, 3)] * 3
    assert sum(len(devices) for _, _, devices in found) == 300
    bench.devices = [Device(name="one")]
    bench.publisher.wake()
    assert await bench.seen() == [(3, 1, ["one"])]


async def test_fields_that_the_server_drops_are_not_written_for_ever(bench: Bench) -> None:
    bench.devices = [Device(name="a", attributes={"n": DeviceAttribute(ints=[1], int_=1)})]
    bench.publisher.wake()
    first = await bench.seen()
    bench.publisher.wake()
    assert await bench.seen() == first


def test_slices_have_a_limited_number_of_devices() -> None:
    plain = [Device(name=str(i)) for i in range(129)]
    assert [len(each) for each in chunks(plain)] == [128, 1]
    assert chunks([]) == [[]]
