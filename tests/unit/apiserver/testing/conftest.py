"""A server that was started for tests."""

from collections.abc import AsyncIterator

import pytest

from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(is_for_tests=True) as running:
        yield running
