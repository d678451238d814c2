"""`kedge namespace`: which one it is, and another one."""

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.namespace import command
from kedge.client import kubeconfig, login
from kedge.testing.server import memory_server

Captured = pytest.CaptureFixture[str]


@pytest.fixture
async def path(tmp_path: Path) -> AsyncIterator[Path]:
    """The kubeconfig of a running server."""
    path = tmp_path / "config"
    async with memory_server(tmp_path / "state") as running:
        access = kubeconfig.ClusterAccess("here", running.url, running.ca_pem, running.token)
        kubeconfig.merge(path, access)
        yield path


async def run(path: Path, name: str | None) -> int:
    flags = Namespace(name=name, kubeconfig=path, context="")
    return await asyncio.to_thread(command.run, flags)


async def test_a_new_namespace_is_created_and_made_the_current_one(
    path: Path, capsys: Captured
) -> None:
    await run(path, None)
    assert capsys.readouterr().out == "default\n"
    assert await run(path, "myspace") == 0
    switched = 'Context "here" now uses the namespace "myspace".\n'
    assert capsys.readouterr().out == f"namespace/myspace created\n{switched}"
    assert login.read([path]).namespace == "myspace"
    await run(path, "myspace")
    assert capsys.readouterr().out == switched
    await run(path, None)
    assert capsys.readouterr().out == "myspace\n"


async def test_a_name_that_is_none_changes_nothing(path: Path) -> None:
    with pytest.raises(Failure, match='"My_Space" is no name for a namespace'):
        await run(path, "My_Space")
    assert login.read([path]).namespace == ""
