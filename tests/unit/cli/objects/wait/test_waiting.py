"""Waiting for objects, in front of a server in this process."""

import asyncio
from argparse import Namespace
from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.wait.condition import parse
from kedge.cli.objects.wait.waiting import wait
from kedge.machinery.errors import StatusError
from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"


def flags(*words: str, **others: Any) -> Namespace:
    given = {"selector": "", "field_selector": "", "all": False, "all_namespaces": False}
    return Namespace(words=words, **{"timeout": 10.0, **given, **others})


async def test_a_value_that_comes_later_ends_the_wait(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    waiting = asyncio.ensure_future(wait(there, flags("cm/a"), parse("jsonpath={.data.k}=2")))
    await server.settle()
    await server.merge(f"{MAPS}/a", {"data": {"other": "2"}})
    await server.settle()
    assert not waiting.done()
    await server.merge(f"{MAPS}/a", {"data": {"k": "2"}})
    assert await waiting == 0
    assert capsys.readouterr().out == "configmap/a condition met\n"


async def test_an_object_that_is_deleted_or_created_ends_the_wait(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = asyncio.ensure_future(wait(there, flags("cm/a"), parse("create")))
    await server.settle()
    await server.post(MAPS, {"metadata": {"name": "a"}})
    assert await waiting == 0
    waiting = asyncio.ensure_future(wait(there, flags("cm/a"), parse("delete")))
    await server.settle()
    await server.delete(f"{MAPS}/a")
    assert await waiting == 0
    assert await wait(there, flags("cm/a"), parse("delete")) == 0
    assert capsys.readouterr().out == "configmap/a created\n" + "configmap/a deleted\n" * 2


async def test_the_end_of_the_time_names_the_object(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    asked = flags("cm", timeout=0.01, all=True, field_selector="metadata.name=a")
    assert await wait(there, asked, parse("condition=Ready")) == 1
    assert capsys.readouterr().err == (
        "error: timed out waiting for the condition on configmap/a: it has no condition Ready\n"
        "'kedge describe configmap/a -n default' shows more\n"
    )


async def test_what_does_not_exist_is_told(there: ApiSession) -> None:
    with pytest.raises(StatusError, match="not found"):
        await wait(there, flags("cm/none"), parse("condition=Ready"))
    with pytest.raises(Failure, match="no matching resources found"):
        await wait(there, flags("cm", selector="app=none"), parse("condition=Ready"))
    with pytest.raises(Failure, match="no name was specified"):
        await wait(there, flags("cm"), parse("condition=Ready"))
