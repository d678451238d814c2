"""`kedge get`, in front of a server in this process."""

import asyncio
from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.get.show import GetOptions, show, version_in
from kedge.testing.local_server import LocalServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def maps(server: LocalServer) -> None:
    for name in ("a", "bb"):
        metadata = {"name": name, "labels": {"app": name}}
        await server.call("POST", CONFIG_MAPS, {"metadata": metadata, "data": {"k": "v"}})


Captured = pytest.CaptureFixture[str]


async def test_objects_are_shown_as_the_servers_table(
    there: ApiSession, maps: None, capsys: Captured
) -> None:
    assert await show(there, GetOptions(["cm"])) == 0
    assert capsys.readouterr().out == "NAME   DATA   AGE\na      1      0s\nbb     1      0s\n"


async def test_what_was_named_is_shown_and_what_is_missing_is_said(
    there: ApiSession, maps: None, capsys: Captured
) -> None:
    assert await show(there, GetOptions(["cm", "bb", "nope", "a"], headings=False)) == 1
    said = capsys.readouterr()
    assert said.out == "bb    1     0s\na     1     0s\n"
    assert said.err == 'Error from server (NotFound): configmaps "nope" not found\n'
    assert await show(there, GetOptions(["cm", "nope"], ignore_missing=True)) == 0
    assert capsys.readouterr() == ("", "")


async def test_several_types_are_told_apart(
    there: ApiSession, maps: None, capsys: Captured
) -> None:
    await show(there, GetOptions(["cm,pods,ns"], labels="app!=a", show_labels=True))
    tables = capsys.readouterr().out.split("\n\n")
    assert [table.splitlines()[0].split()[0] for table in tables] == ["NAME", "NAME"]
    assert tables[0].splitlines()[1].split() == ["configmap/bb", "1", "0s", "app=bb"]
    assert "namespace/default " in tables[1]


async def test_all_namespaces_are_shown_with_their_names(
    there: ApiSession, maps: None, capsys: Captured
) -> None:
    await show(there, GetOptions(["cm"], everywhere=True, fields="metadata.name=a"))
    heads, row = capsys.readouterr().out.splitlines()
    assert heads.split() == ["NAMESPACE", "NAME", "DATA", "AGE"]
    assert row.split() == ["default", "a", "1", "0s"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (GetOptions(["pods"]), "No resources found in default namespace.\n"),
        (GetOptions(["pods"], everywhere=True), "No resources found\n"),
        (GetOptions(["nodes"]), "No resources found\n"),
        (GetOptions(["pods"], output="name"), ""),
    ],
)
async def test_nothing_is_said_to_be_nothing(
    there: ApiSession, capsys: Captured, asked: GetOptions, said: str
) -> None:
    assert await show(there, asked) == 0
    assert capsys.readouterr() == ("", said)


async def test_objects_are_shown_in_full(there: ApiSession, maps: None, capsys: Captured) -> None:
    await show(there, GetOptions(["cm/a"], output="yaml"))
    assert capsys.readouterr().out.startswith("apiVersion: v1\ndata:\n  k: v\nkind: ConfigMap\n")
    await show(there, GetOptions(["cm"], output="jsonpath={.kind} {.items[*].metadata.name}"))
    assert capsys.readouterr().out == "List a bb"
    await show(there, GetOptions(["cm"], output="name"))
    assert capsys.readouterr().out == "configmap/a\nconfigmap/bb\n"


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (
            GetOptions(["cm", "a"], everywhere=True),
            "cannot be retrieved by name across all namespaces",
        ),
        (
            GetOptions(["cm", "a"], labels="a=b"),
            "name cannot be provided when a selector is specified",
        ),
        (GetOptions(["cm,pods"], watch=True), "only specify a single resource type or object"),
        (GetOptions(["cm"], output="jsonpath={.a"), "unclosed action"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    there: ApiSession, asked: GetOptions, complaint: str
) -> None:
    with pytest.raises(Failure, match=complaint):
        await show(there, asked)


async def _until(capsys: Captured, lines: int, server: LocalServer) -> list[str]:
    """What has been printed, as soon as it is so many lines."""
    text = ""
    for _ in range(1000):
        text += capsys.readouterr().out
        if len(text.splitlines()) >= lines:
            return text.splitlines()
        await server.settle()
    raise AssertionError(f"only this was printed: {text!r}")


async def test_a_watch_adds_rows_to_the_table(
    there: ApiSession, server: LocalServer, maps: None, capsys: Captured
) -> None:
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(show(there, GetOptions(["cm", "bb"], watch=True)))
        assert await _until(capsys, 2, server) == ["NAME   DATA   AGE", "bb     1      0s"]
        await server.call("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}})
        await server.call("PUT", f"{CONFIG_MAPS}/bb", {"metadata": {"name": "bb"}})
        assert await _until(capsys, 1, server) == ["bb     0      0s"]
        watch.cancel()


async def test_a_watch_of_documents_prints_each_state(
    there: ApiSession, server: LocalServer, maps: None, capsys: Captured
) -> None:
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(show(there, GetOptions(["cm"], output="name", watch=True)))
        assert await _until(capsys, 2, server) == ["configmap/a", "configmap/bb"]
        await server.call("DELETE", f"{CONFIG_MAPS}/a")
        assert await _until(capsys, 1, server) == ["configmap/a"]
        watch.cancel()


def test_the_version_of_a_row_is_that_of_its_object() -> None:
    row: dict[str, Any] = {"object": {"metadata": {"resourceVersion": "7"}}}
    assert version_in({"metadata": {}, "rows": [row]}) == "7"
    assert version_in({"metadata": {"resourceVersion": "8"}}) == "8"
    assert version_in({"metadata": {"resourceVersion": "9"}, "rows": []}) == "9"
