"""`kedge requests` against a server in this process."""

from collections.abc import AsyncIterator

import pytest

from kedge.cli.main import parser
from kedge.cli.objects.connection import ApiSession
from kedge.cli.requests.show import HEADS, showing
from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(is_for_tests=True) as server:
        yield server


async def show(there: ApiSession, *flags: str) -> None:
    assert await showing(parser().parse_args(["requests", *flags]))(there) == 0


async def test_requests_as_a_table(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    agent = {"user-agent": "op/1.0"}
    await server.post(MAPS, {"metadata": {"name": "a"}}, headers=agent)
    await server.merge(f"{MAPS}/a", {}, headers=agent)
    await show(there, "--user-agent", "op")
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split() == list(HEADS)
    cells = [" ".join(row.split()[1:]) for row in rows]
    assert cells == [
        "00:00:00.000 op create configmaps default/a 201 0.000",
        "00:00:00.000 op patch configmaps default/a 200 0.000 unchanged",
    ]


async def test_requests_as_a_document(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    await server.get("/version", headers={"user-agent": "op/1.0"})
    await show(there, "--user-agent=op", "-o=json")
    assert '"path": "/version"' in capsys.readouterr().out


async def test_no_requests(there: ApiSession, capsys: Captured) -> None:
    await show(there, "--user=nobody", "--since=1")
    assert capsys.readouterr().out == "There are no such requests.\n"
