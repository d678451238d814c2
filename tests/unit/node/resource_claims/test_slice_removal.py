"""The ResourceSlices of drivers that do not serve the node are removed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kedge.api.resource_v1 import resource_slice
from kedge.client.transport import Unreachable
from kedge.node.resource_claims.slice_removal import NodeSlices
from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=("NodeRestriction",)) as running:
        for node, driver in (
            ("n", "a.example.com"),
            ("n", "b.example.com"),
            ("m", "a.example.com"),
        ):
            document = {
                "metadata": {"name": f"{node}-{driver}"},
                "spec": {
                    "driver": driver,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "d"}],
                },
            }
            made = resource_slice.RESOURCE.from_document(document)
            await running.client.create(resource_slice.RESOURCE, made)
        yield running


async def left(server: LocalServer) -> list[str]:
    found = await server.client.list(resource_slice.RESOURCE)
    return sorted(each.metadata.name for each in found.items)


async def test_the_slices_of_one_driver_or_of_all_are_removed(server: LocalServer) -> None:
    slices = NodeSlices(server.client, "n", server.clock)
    await slices.remove("a.example.com")
    assert await left(server) == ["m-a.example.com", "n-b.example.com"]
    await slices.remove()
    await slices.remove()
    assert await left(server) == ["m-a.example.com"]


async def test_a_node_may_remove_its_own_slices(server: LocalServer) -> None:
    await NodeSlices(server.client_of_node("n"), "n", server.clock).remove()
    assert await left(server) == ["m-a.example.com"]


async def test_a_failure_is_retried(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = server.client
    real, failures = client.delete_collection, [Unreachable("gone")]

    async def flaky(*given: object, **named: object) -> None:
        if failures:
            raise failures.pop()
        await real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "delete_collection", flaky)
    work = asyncio.ensure_future(NodeSlices(client, "n", server.clock).remove())
    await server.clock.advance(0.5)
    assert not work.done()
    await server.clock.advance(1)
    await work
    assert await left(server) == ["m-a.example.com"]
