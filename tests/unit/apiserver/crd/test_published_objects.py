"""The published examples of custom objects, on a whole server."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.testing.local_server import LocalServer

CASES = yaml.safe_load(Path(__file__).with_name("published_objects.yaml").read_text())
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SHIRTS = "/apis/stable.example.com/v1/namespaces/default/shirts"
TYPE = {"apiVersion": "stable.example.com/v1", "kind": "Shirt"}


async def define(server: LocalServer, schema: dict[str, Any], **version: Any) -> None:
    served = {"name": "v1", "served": True, "storage": True} | version
    spec = {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {"plural": "shirts", "singular": "shirt", "kind": "Shirt"},
        "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
    }
    await server.post(CRDS, {"metadata": {"name": "shirts.stable.example.com"}, "spec": spec})
    await server.settle()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
async def test_published_objects(server: LocalServer, case: dict[str, Any]) -> None:
    await define(server, case["schema"])
    answer = await server.call("POST", SHIRTS, TYPE | {"metadata": {"name": "s"}} | case["sent"])
    if "refused" in case:
        assert answer.status == 422
        assert answer.message.endswith(f'"s" is invalid: {case["refused"]}')
        return
    assert answer.status == 201, answer.text
    found = await server.get(f"{SHIRTS}/s")
    head = {"apiVersion", "kind", "metadata"}
    assert {name: found[name] for name in found.keys() - head} == case["stored"]


async def test_the_published_shirts_are_selected_by_color_and_size(server: LocalServer) -> None:
    fields = {"color": {"type": "string"}, "size": {"type": "string"}}
    spec = {"type": "object", "properties": fields}
    selectable = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]
    schema = {"type": "object", "properties": {"spec": spec}}
    await define(server, schema, selectableFields=selectable)
    for name, color, size in (
        ("example1", "blue", "S"),
        ("example2", "blue", "M"),
        ("example3", "green", "M"),
    ):
        shirt = {"metadata": {"name": name}, "spec": {"color": color, "size": size}}
        await server.post(SHIRTS, TYPE | shirt)
    for selector, wanted in (
        ("spec.color%3Dblue", ["example1", "example2"]),
        ("spec.color%3Dgreen,spec.size%3DM", ["example3"]),
    ):
        found = await server.get(f"{SHIRTS}?fieldSelector={selector}")
        assert [item["metadata"]["name"] for item in found["items"]] == wanted
    answer = await server.call("GET", f"{SHIRTS}?fieldSelector=spec.fit%3Dslim")
    assert answer.status == 400
    assert answer.message.endswith("field label not supported: spec.fit")
