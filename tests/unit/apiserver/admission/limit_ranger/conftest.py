"""A server that heeds LimitRanges."""

from collections.abc import AsyncIterator

import pytest

from kedge.testing.local_server import LocalServer


@pytest.fixture
async def limited() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=("NamespaceLifecycle", "LimitRanger")) as running:
        yield running
