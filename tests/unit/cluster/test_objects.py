from pathlib import Path
from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.manifests import Manifest
from kedge.client.discovery import Discovery
from kedge.client.login import Login
from kedge.cluster import objects
from kedge.cluster.errors import ClusterError
from kedge.cluster.objects import ObjectApi, read
from kedge.testing.local_server import LocalServer

TEXT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: Secret\napiVersion: v1\n"


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_manifests_are_objects_texts_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(TEXT)
    (tmp_path / "notes.txt").write_text("no manifest")
    both = ["ConfigMap", "Secret"]
    assert [each.kind for each in read(TEXT)] == both
    assert [each.kind for each in read(tmp_path / "one.yaml")] == both
    assert [each.kind for each in read(str(tmp_path))] == both
    assert [each.name for each in read(config_map("a"))] == ["a"]
    assert [each.name for each in read([config_map("a"), config_map("b")])] == ["a", "b"]
    assert [each.name for each in read('{"apiVersion": "v1", "kind": "Pod"}')] == [""]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("a: b\n", "apiVersion not set"),
        ("missing.yaml", "cannot read missing.yaml: No such file"),
        ({"kind": "Pod"}, "apiVersion not set"),
        ("kind: [\n", "error parsing the text"),
    ],
)
def test_a_manifest_that_is_none_is_refused(source: Any, complaint: str) -> None:
    with pytest.raises(ClusterError, match=complaint):
        read(source)


def api_of(server: LocalServer, namespace: str = "default") -> ObjectApi:
    client = server.client
    nowhere = Login(context="", file=Path(), server="")
    return ObjectApi(ApiSession(nowhere, client, Discovery(client), namespace))


async def test_words_name_objects_as_with_kubectl() -> None:
    async with LocalServer.running() as server:
        api = api_of(server, "shop")
        short, two = await api.ref("cm/a", "", ""), await api.ref("configmaps", "a", "")
        assert short == two
        assert str(short) == "configmap/a in namespace shop"
        assert (await api.ref("ns/a", "", "")).namespace == ""
        assert (await api.ref("cm/a", "", "other")).namespace == "other"
        for what, name in (("cm", ""), ("cm/a", "b"), ("cm/", "")):
            with pytest.raises(ClusterError, match="is no object"):
                await api.ref(what, name, "")
        with pytest.raises(ClusterError, match="doesn't have a resource type"):
            await api.ref("nothing/a", "", "")


async def test_an_object_is_applied_changed_and_deleted() -> None:
    async with LocalServer.running() as server:
        api = api_of(server)
        [manifest] = read({**config_map("a"), "data": {"x": "1"}})
        made = await api.apply(manifest, "", force=False)
        assert made["metadata"]["namespace"] == "default"
        ref = await api.ref("cm/a", "", "")
        assert (await api.patch(ref, {"data": {"y": "2"}}, ""))["data"] == {"x": "1", "y": "2"}
        listed, version = await api.list(ref.resource, "default", {"labelSelector": ""})
        assert [each["kind"] for each in listed if each["metadata"]["name"] == "a"] == ["ConfigMap"]
        assert int(version) > 0
        await api.delete(ref, None)
        assert await api.find(ref) is None


async def test_an_object_of_a_kind_that_is_defined_and_not_served_is_applied_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [version],
    }
    find = ApiSession.resource_of
    tries: list[str] = []

    async def found_at_the_third_try(session: ApiSession, manifest: Manifest) -> Any:
        tries.append(manifest.kind)
        if len(tries) in (2, 3):
            raise Failure("not served")
        return await find(session, manifest)

    monkeypatch.setattr(ApiSession, "resource_of", found_at_the_third_try)
    monkeypatch.setattr(objects, "SERVE_PAUSES", (0, 0))
    [widget] = read({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}})
    async with LocalServer.running() as server:
        api = api_of(server)
        with pytest.raises(ClusterError, match="ensure CRDs are installed first"):
            await api.apply(widget, "", force=False)
        assert len(tries) == 1
        definition = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
        await server.call("POST", objects.DEFINITIONS, definition)
        await server.settle()
        assert (await api.apply(widget, "", force=False))["kind"] == "Widget"
        assert len(tries) == 4
