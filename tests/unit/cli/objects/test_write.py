"""`kedge create` and `kedge apply`, in front of a server in this process."""

from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.manifests import Manifest
from kedge.cli.objects.write import WriteOptions, apply, create
from kedge.testing.local_server import APPLY, LocalServer

Captured = pytest.CaptureFixture[str]


def config_map(name: str, **data: str) -> Manifest:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    return Manifest(document, "maps.yaml")


async def test_what_can_be_created_is_and_the_rest_is_said(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    assert (
        await create(there, WriteOptions([config_map("a"), config_map("a"), config_map("b")])) == 1
    )
    said = capsys.readouterr()
    assert said.out == "configmap/a created\nconfigmap/b created\n"
    assert said.err == (
        'Error from server (AlreadyExists): error when creating "maps.yaml": configmaps "a" already'
        " exists\n"
    )


async def test_a_dry_run_changes_nothing(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    assert await create(there, WriteOptions([config_map("a")], dry_run=True)) == 0
    assert capsys.readouterr().out == "configmap/a created (server dry run)\n"
    found = await server.call("GET", "/api/v1/namespaces/default/configmaps/a")
    assert found.status == 404


async def test_unknown_fields_are_refused(there: ApiSession, capsys: Captured) -> None:
    wrong: dict[str, Any] = {**config_map("a").document, "dta": {}}
    assert await create(there, WriteOptions([Manifest(wrong, "f")])) == 1
    assert 'unknown field "dta"' in capsys.readouterr().err


async def test_names_are_generated(there: ApiSession, capsys: Captured) -> None:
    document = {**config_map("").document, "metadata": {"generateName": "x-"}}
    assert await create(there, WriteOptions([Manifest(document, "f")], output="name")) == 0
    assert capsys.readouterr().out.startswith("configmap/x-")
    assert await apply(there, WriteOptions([Manifest(document, "f")])) == 1
    assert "ConfigMap has no name" in capsys.readouterr().err


async def test_apply_says_what_it_did(there: ApiSession, capsys: Captured) -> None:
    for manifest, deed in (
        (config_map("a", k="1"), "created"),
        (config_map("a", k="1"), "unchanged"),
        (config_map("a", k="2"), "configured"),
    ):
        assert await apply(there, WriteOptions([manifest], dry_run=True)) == 0
        assert capsys.readouterr().out == f"configmap/a {deed} (server dry run)\n"
        assert await apply(there, WriteOptions([manifest])) == 0
        assert capsys.readouterr().out == f"configmap/a {deed}\n"
    await apply(there, WriteOptions([config_map("a")], by_the_book=True))
    assert capsys.readouterr().out == "configmap/a serverside-applied\n"


async def test_a_conflict_is_told_with_what_can_be_done(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    path = "/api/v1/namespaces/default/configmaps/a?fieldManager=other"
    theirs = config_map("a", k="theirs").document
    await server.call("PATCH", path, theirs, content_type=APPLY)
    ours = [config_map("a", k="ours")]
    assert await apply(there, WriteOptions(ours)) == 1
    said = capsys.readouterr().err
    assert 'conflict with "other": .data.k' in said
    assert "--force-conflicts" in said
    assert await apply(there, WriteOptions(ours, force=True, output="jsonpath={.data.k}")) == 0
    assert capsys.readouterr().out == "ours"


async def test_what_was_created_can_be_applied(there: ApiSession, capsys: Captured) -> None:
    await create(there, WriteOptions([config_map("a", k="1")]))
    assert await apply(there, WriteOptions([config_map("a", k="2")])) == 0
    assert capsys.readouterr().out == "configmap/a created\nconfigmap/a configured\n"


async def test_several_objects_are_separate_documents(there: ApiSession, capsys: Captured) -> None:
    await create(there, WriteOptions([config_map("a"), config_map("b")], output="yaml"))
    assert capsys.readouterr().out.count("---\napiVersion: v1\n") == 2
