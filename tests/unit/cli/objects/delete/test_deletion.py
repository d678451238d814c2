"""`kedge delete`, in front of a server in this process."""

import asyncio
from typing import Any

import msgspec
import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.delete.deletion import DeleteRequest, check, delete
from kedge.cli.objects.manifests import Manifest
from kedge.testing.local_server import MERGE, LocalServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
Captured = pytest.CaptureFixture[str]


async def make(server: LocalServer, name: str, **metadata: Any) -> None:
    answer = await server.call("POST", CONFIG_MAPS, {"metadata": {"name": name, **metadata}})
    assert answer.status == 201


async def left(server: LocalServer) -> list[str]:
    listed = (await server.call("GET", CONFIG_MAPS)).document["items"]
    return [each["metadata"]["name"] for each in listed]


async def test_what_is_named_goes_and_what_is_missing_is_said(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    await make(server, "a")
    assert await delete(there, DeleteRequest(["cm", "nope", "a"])) == 1
    said = capsys.readouterr()
    assert said.out == 'configmap "a" deleted from default namespace\n'
    assert said.err == 'Error from server (NotFound): configmaps "nope" not found\n'
    assert await left(server) == []
    assert await delete(there, DeleteRequest(["cm/a"], ignore_missing=True)) == 0


async def test_a_selector_chooses_and_all_means_all(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    for name in ("a", "b", "c"):
        await make(server, name, labels={"app": name})
    await delete(there, DeleteRequest(["cm"], labels="app=b", output="name"))
    assert capsys.readouterr().out == "configmap/b\n"
    await delete(there, DeleteRequest(["cm"], all=True, dry_run=True))
    assert "(server dry run)" in capsys.readouterr().out
    assert await left(server) == ["a", "c"]
    await delete(there, DeleteRequest(["cm"], all=True))
    assert await left(server) == []
    capsys.readouterr()
    assert await delete(there, DeleteRequest(["cm"], all=True)) == 0
    assert capsys.readouterr().err == "No resources found\n"


async def test_files_name_what_goes(
    there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    await make(server, "a")
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    asked = DeleteRequest(manifests=[Manifest(document, "f.yaml")])
    assert await delete(there, asked) == 0
    assert await delete(there, asked) == 1
    assert 'error when deleting "f.yaml": configmaps "a" not found' in capsys.readouterr().err


async def test_the_command_stays_until_a_finalizer_lets_go(
    there: ApiSession, server: LocalServer
) -> None:
    await make(server, "a", finalizers=["example.com/hold"])
    async with asyncio.TaskGroup() as group:
        deletion = group.create_task(delete(there, DeleteRequest(["cm", "a"])))
        while "deletionTimestamp" not in await _metadata(server, "a"):
            await server.settle()
        assert not deletion.done()
        patch = {"metadata": {"finalizers": None}}
        await server.call("PATCH", f"{CONFIG_MAPS}/a", patch, content_type=MERGE)
        assert await deletion == 0


async def _metadata(server: LocalServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await server.call("GET", f"{CONFIG_MAPS}/{name}")).document
    return dict(found["metadata"])


async def test_patience_has_an_end_if_one_is_set(there: ApiSession, server: LocalServer) -> None:
    await make(server, "a", finalizers=["example.com/hold"])
    with pytest.raises(Failure, match="timed out waiting for the deletion of configmap/a"):
        await delete(there, DeleteRequest(["cm", "a"], timeout=0.01))
    assert await delete(there, DeleteRequest(["cm", "a"], wait=False)) == 0


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        (DeleteRequest(), {"propagationPolicy": "Background"}),
        (DeleteRequest(force=True), {"propagationPolicy": "Background", "gracePeriodSeconds": 0}),
        (DeleteRequest(grace=0), {"propagationPolicy": "Background", "gracePeriodSeconds": 1}),
        (DeleteRequest(cascade="orphan"), {"propagationPolicy": "Orphan"}),
        (DeleteRequest(dry_run=True), {"propagationPolicy": "Background", "dryRun": ["All"]}),
    ],
)
def test_how_to_delete_is_sent_along(asked: DeleteRequest, sent: dict[str, Any]) -> None:
    head = {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert msgspec.json.decode(asked.options().encoded()) == {**head, **sent}


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (DeleteRequest(), "name the objects to delete"),
        (DeleteRequest(["cm"], all=True, labels="a=b"), "cannot set --all and a selector"),
        (
            DeleteRequest(["cm"], manifests=[Manifest({}, "")]),
            "-f cannot be combined with",
        ),
        (DeleteRequest(["cm"], force=True, grace=5), "cannot be specified together"),
    ],
)
def test_what_is_unclear_is_refused_before_anything_is_deleted(
    asked: DeleteRequest, complaint: str
) -> None:
    with pytest.raises(Failure, match=complaint):
        check(asked)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (DeleteRequest(["cm"]), "no name was specified"),
        (DeleteRequest(["cm", "a"], all=True), "name cannot be provided when"),
    ],
)
async def test_what_is_unclear_to_the_server_only_is_refused_too(
    there: ApiSession, asked: DeleteRequest, complaint: str
) -> None:
    with pytest.raises(Failure, match=complaint):
        await delete(there, asked)


async def test_objects_of_a_server_that_prints_nulls_are_deleted(
    go_there: ApiSession, server: LocalServer, capsys: Captured
) -> None:
    await make(server, "a")
    assert await delete(go_there, DeleteRequest(["cm"], all=True)) == 0
    assert capsys.readouterr().out == 'configmap "a" deleted from default namespace\n'
    assert await delete(go_there, DeleteRequest(["cm"], all=True)) == 0
    assert capsys.readouterr().err == "No resources found\n"
