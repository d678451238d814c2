"""The parts of a node that talk to the API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.node import components
from kedge.node.host.node_description import NodeDescription
from kedge.node.host.registration import NodeRegistration
from kedge.node.runtime.runtime import RuntimeLevel
from kedge.testing.foundation import foundation
from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


async def test_connected_parts_register_the_node(server: LocalServer, tmp_path: Path) -> None:
    # At this level nothing is mounted, so that the test leaves nothing behind.
    level = RuntimeLevel.USERNS
    base = foundation(tmp_path, refusal="no links", level=level, clock=server.clock)
    this = NodeRegistration(
        server.client,
        server.clock,
        NodeDescription(base).node_object("192.0.2.7", 10250),
        base.images_in_status,
        base.devices,
        has_disk_pressure=bool,
        cluster_size=int,
    )
    parts = components.connect(base, server.client, this)
    assert this in parts.tasks
    assert parts.pods in parts.tasks
    server.start(this.run())
    await server.settle()
    node = await server.get("/api/v1/nodes/box")
    assert {"type": "InternalIP", "address": "192.0.2.7"} in node["status"]["addresses"]
