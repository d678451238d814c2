"""A connection to a server in this process, as commands have one to a cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.cli.connection import Connection
from kedge.client.discovery import Discovery
from kedge.client.login import Login
from kedge.testing.local_server import LocalServer


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        yield server


@pytest.fixture
def there(server: LocalServer) -> Connection:
    login = Login(context="here", file=Path("config"), server="https://here")
    return Connection(login, server.client, Discovery(server.client))
