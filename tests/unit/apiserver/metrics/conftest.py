"""Nodes that report to the server of the test."""

import pytest

from kedge.testing.local_server import LocalServer
from kedge.testing.reporting_nodes import ReportingNodes


@pytest.fixture
async def nodes(server: LocalServer) -> ReportingNodes:
    return ReportingNodes(server)
