"""Servers and nodes for the tests of the design documents."""

from collections.abc import AsyncIterator

import pytest

from kedge.testing.local_server import LocalServer
from kedge.testing.reporting_nodes import ReportingNodes


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


@pytest.fixture
async def strict() -> AsyncIterator[LocalServer]:
    """A server that refuses kedge's extensions."""
    async with LocalServer.running(upstream_only=True) as running:
        yield running


@pytest.fixture
async def nodes(server: LocalServer) -> ReportingNodes:
    """Nodes that report usage to the server."""
    return ReportingNodes(server)
