"""A server for what the seeds say of the API."""

from collections.abc import AsyncIterator

import pytest

from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


@pytest.fixture
async def strict() -> AsyncIterator[LocalServer]:
    """The same, knowing nothing that Kubernetes does not know."""
    async with LocalServer.running(upstream_only=True) as running:
        yield running
