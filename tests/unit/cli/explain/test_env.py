"""`kedge explain env`: every variable of a container, and where it comes from."""

from typing import Any

import pytest

from kedge.cli.explain.env import explain
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.testing.local_server import LocalServer

NAMESPACE = "/api/v1/namespaces/default"


def variable(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": source}


ENV = [
    {"name": "PLAIN", "value": "a b"},
    {"name": "EXPANDED", "value": "$(PLAIN)/$(M_A)/$(S_PASSWORD)"},
    variable("NAME", fieldRef={"fieldPath": "metadata.name"}),
    variable("SHARES", containerFieldRef={"fieldPath": "resources.limits.cpu"}),
    variable("MILLI", resourceFieldRef={"resource": "limits.cpu", "divisor": "1m"}),
    variable("OTHER", resourceFieldRef={"containerName": "b", "resource": "requests.memory"}),
    variable("KEY", configMapKeyRef={"name": "m", "key": "A"}),
    variable("PASSWORD", secretKeyRef={"name": "s", "key": "PASSWORD"}),
    variable("M_B", configMapKeyRef={"name": "none", "key": "x", "optional": True}),
]


async def make(server: LocalServer, env: list[dict[str, Any]]) -> None:
    await server.post(
        f"{NAMESPACE}/configmaps", {"metadata": {"name": "m"}, "data": {"A": "1", "B": "x\ny"}}
    )
    secret = {"metadata": {"name": "s"}, "stringData": {"PASSWORD": "hush"}}
    await server.post(f"{NAMESPACE}/secrets", secret)
    first = {
        "name": "a",
        "image": "i",
        "resources": {"limits": {"cpu": "500m"}},
        "envFrom": [
            {"prefix": "M_", "configMapRef": {"name": "m"}},
            {"prefix": "S_", "secretRef": {"name": "s"}},
        ],
        "env": env,
    }
    second = {"name": "b", "image": "i", "resources": {"requests": {"memory": "1Mi"}}}
    spec = {"containers": [first, second], "enableServiceLinks": False}
    await server.post(f"{NAMESPACE}/pods", {"metadata": {"name": "web"}, "spec": spec})


async def test_every_variable_has_its_value_and_its_source(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    await make(server, ENV)
    assert await explain(there, "web", "") == 0
    said = capsys.readouterr().out
    assert "hush" not in said
    head, _, names, *rows = said.splitlines()
    assert head == 'Pod "web", namespace default, container a'
    assert names.split() == ["NAME", "VALUE", "FROM"]
    columns = [names.index("VALUE"), names.index("FROM")]
    found = [
        (row[: columns[0]].strip(), row[columns[0] : columns[1]].strip(), row[columns[1] :])
        for row in rows[: rows.index("")]
    ]
    assert found[:12] == [
        ("M_A", "1", "ConfigMap m, key A"),
        ("M_B", '"x\\ny"', "ConfigMap m, key B"),
        ("S_PASSWORD", "<secret>", "Secret s, key PASSWORD"),
        ("PLAIN", "a b", "manifest"),
        ("EXPANDED", "a b/1/<secret>", "manifest: $(PLAIN)/$(M_A)/$(S_PASSWORD)"),
        ("NAME", "web", "field metadata.name"),
        ("SHARES", "512", "resources.limits.cpu of the container"),
        ("MILLI", "500", "limits.cpu of the container, in 1m"),
        ("OTHER", "1048576", "requests.memory of container b"),
        ("KEY", "1", "ConfigMap m, key A"),
        ("PASSWORD", "<secret>", "Secret s, key PASSWORD"),
        ("KUBERNETES_PORT", found[11][1], "services"),
    ]
    assert {whence for _, _, whence in found[11:]} == {"services"}


async def test_what_keeps_the_container_from_starting_is_said(
    server: LocalServer, there: ApiSession, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = variable("A", configMapKeyRef={"name": "none", "key": "x"})
    nobody = variable("B", resourceFieldRef={"containerName": "nope", "resource": "limits.cpu"})
    await make(server, [missing, nobody])
    assert await explain(there, "web", "a") == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        'It could not start: A: configmap "none" not found',
        "It could not start: B: container nope not found",
    ]


async def test_container_must_be_there(server: LocalServer, there: ApiSession) -> None:
    await make(server, [])
    with pytest.raises(Failure, match='no container "c"; it has a, b'):
        await explain(there, "web", "c")
