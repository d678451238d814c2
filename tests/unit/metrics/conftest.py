"""A running server, and nodes that report to it."""

from collections.abc import AsyncIterator

import pytest

from kedge.testing.local_server import LocalServer
from kedge.testing.reporting_nodes import ReportingNodes


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


@pytest.fixture
async def nodes(server: LocalServer) -> ReportingNodes:
    return ReportingNodes(server)
