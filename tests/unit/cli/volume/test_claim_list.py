"""`kedge volume list`, in front of a server in this process."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.volume.claim_list import show
from kedge.testing.local_server import LocalServer

Captured = pytest.CaptureFixture[str]
VOLUMES = "/api/v1/persistentvolumes"


def on_node(name: str) -> dict[str, Any]:
    """The part of a volume that only one node can mount."""
    wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
    terms = [{"matchExpressions": [wanted]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


class Objects:
    """Creates the objects of a test."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server

    async def node(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name}
        await self._server.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})

    async def volume(self, name: str, claim: str = "", **spec: Any) -> None:
        namespace, _, name_of_claim = claim.partition("/")
        whole = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "hostPath": {"path": "/x"},
            **({"claimRef": {"namespace": namespace, "name": name_of_claim}} if claim else {}),
            **spec,
        }
        await self._server.post(VOLUMES, {"metadata": {"name": name}, "spec": whole})

    async def claim(
        self, key: str, volume: str = "", status: Mapping[str, Any] | None = None
    ) -> None:
        namespace, name = key.split("/")
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "standard",
            "volumeName": volume,
        }
        url = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        await self._server.post(url, {"metadata": {"name": name}, "spec": spec})
        if status:
            await self._server.merge(f"{url}/{name}/status", {"status": status})

    async def pod(self, key: str, *claims: str, phase: str = "Running") -> None:
        namespace, name = key.split("/")
        volumes = [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
            for number, claim in enumerate(claims)
        ]
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
        url = f"/api/v1/namespaces/{namespace}/pods"
        await self._server.post(url, {"metadata": {"name": name}, "spec": spec})
        await self._server.merge(f"{url}/{name}/status", {"status": {"phase": phase}})


@pytest.fixture
def objects(server: LocalServer) -> Objects:
    return Objects(server)


BOUND = {"phase": "Bound", "capacity": {"storage": "2Gi"}}


def rows(said: str) -> Sequence[Sequence[str]]:
    return [line.split() for line in said.splitlines()[1:]]


async def test_a_claim_is_listed_with_its_volume_node_and_pods(
    there: ApiSession, objects: Objects, capsys: Captured
) -> None:
    await objects.node("n1")
    await objects.node("n2")
    await objects.volume("pv", "default/data", **on_node("n2"))
    await objects.claim("default/data", "pv", BOUND)
    await objects.claim("default/waits")
    await objects.pod("default/b", "data", "data")
    await objects.pod("default/a", "data")
    await objects.pod("default/done", "data", phase="Succeeded")
    assert await show(there, "", None) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].split("  ")[0] == "NAMESPACE"
    assert rows(said) == [
        ["default", "data", "pv", "n2", "2Gi", "standard", "Bound", "a,b"],
        ["default", "waits", "<none>", "<none>", "<none>", "standard", "Pending", "<none>"],
    ]


async def test_volumes_without_a_claim_come_last(
    there: ApiSession, objects: Objects, server: LocalServer, capsys: Captured
) -> None:
    await objects.node("n1")
    await objects.volume("free")
    await objects.volume("released", "default/gone")
    await objects.volume("taken", "default/data")
    await objects.claim("default/data", "taken", BOUND)
    await server.merge(f"{VOLUMES}/released/status", {"status": {"phase": "Released"}})
    await show(there, "", None)
    assert rows(capsys.readouterr().out) == [
        ["default", "data", "taken", "<any>", "2Gi", "standard", "Bound", "<none>"],
        ["<none>", "<none>", "free", "<any>", "1Gi", "standard", "Pending", "<none>"],
        ["default", "gone", "released", "<any>", "1Gi", "standard", "Released", "<none>"],
    ]


async def test_a_volume_of_a_removed_node_has_no_node(
    there: ApiSession, objects: Objects, capsys: Captured
) -> None:
    await objects.node("n1")
    await objects.volume("pv", **on_node("removed"))
    await show(there, "", None)
    assert rows(capsys.readouterr().out)[0][3] == "<none>"


async def test_one_namespace_hides_the_others(
    there: ApiSession, objects: Objects, server: LocalServer, capsys: Captured
) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    await objects.claim("default/data")
    await objects.claim("shop/data")
    await objects.volume("free")
    await objects.volume("released", "default/gone")
    await show(there, "shop", "json")
    assert json.loads(capsys.readouterr().out) == {
        "items": [
            {
                "namespace": "shop",
                "claim": "data",
                "volume": "",
                "nodes": [],
                "capacity": "",
                "storageClass": "standard",
                "phase": "Pending",
                "pods": [],
            }
        ]
    }


async def test_many_pods_do_not_widen_the_table(
    there: ApiSession, objects: Objects, capsys: Captured
) -> None:
    await objects.claim("default/data")
    for number in range(5):
        await objects.pod(f"default/p{number}", "data")
    await show(there, "", None)
    assert capsys.readouterr().out.endswith("p0,p1,p2 + 2 more...\n")


async def test_a_claim_that_is_being_deleted_is_terminating(
    there: ApiSession, objects: Objects, server: LocalServer, capsys: Captured
) -> None:
    await objects.claim("default/data")
    url = "/api/v1/namespaces/default/persistentvolumeclaims/data"
    await server.merge(url, {"metadata": {"finalizers": ["example.com/wait"]}})
    await server.delete(url)
    await show(there, "", None)
    assert rows(capsys.readouterr().out)[0][6] == "Terminating"


async def test_an_empty_cluster_has_no_table(there: ApiSession, capsys: Captured) -> None:
    assert await show(there, "", None) == 0
    assert capsys.readouterr().out == "There are no claims and no volumes.\n"
    await show(there, "shop", None)
    assert capsys.readouterr().out == "There are no claims and no volumes in namespace shop.\n"
