"""The traffic of a node's pods."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.node.traffic import OpenedNetwork, open_network
from kedge.testing.foundation import foundation
from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


async def test_a_node_without_links_claims_no_network(server: LocalServer, tmp_path: Path) -> None:
    base = foundation(tmp_path, refusal="no links")
    assert await open_network(base, server.client) == OpenedNetwork(None, None)
    assert (await server.get("/api/v1/nodes"))["items"] == []
