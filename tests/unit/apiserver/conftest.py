"""A running server for every test that asks for one."""

from collections.abc import AsyncIterator

import pytest

from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running
