"""managedFields of built-in kinds that clients write in two versions: answers of kube-apiserver
are the cases of the table beside this file."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.apiserver.builtin_versions import versions_of
from kedge.testing.local_server import APPLY, JSON, MERGE, LocalAnswer, LocalServer

CASES = yaml.safe_load(Path(__file__).with_name("builtin_versions.yaml").read_text())
HPAS = "namespaces/default/horizontalpodautoscalers/x"
PATHS = {
    "autoscaling/v1": f"/apis/autoscaling/v1/{HPAS}",
    "autoscaling/v2": f"/apis/autoscaling/v2/{HPAS}",
    "v1": "/api/v1/namespaces/default/events/x",
    "events.k8s.io/v1": "/apis/events.k8s.io/v1/namespaces/default/events/x",
}
METHODS = {"apply": ("PATCH", APPLY), "merge": ("PATCH", MERGE), "get": ("GET", JSON)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
async def test_owners_are_those_of_upstream(server: LocalServer, case: dict[str, Any]) -> None:
    for number, step in enumerate(case["steps"]):
        answer = await _done(server, case["kind"], step)
        wanted = {name: step.get(name) for name in ("code", "message", "spec", "owners")}
        assert _seen(answer) == wanted, f"step {number}"


async def test_kinds_with_one_version_are_not_converted(server: LocalServer) -> None:
    pods = server.app.api.catalog.of_kind("v1", "Pod")
    assert pods is not None
    assert versions_of(pods) is None


async def _done(server: LocalServer, kind: str, step: dict[str, Any]) -> LocalAnswer:
    method, content_type = METHODS[step["do"]]
    url, body = PATHS[step["version"]], step.get("body")
    if "subresource" in step:
        url += f"/{step['subresource']}"
    if step["do"] == "apply":
        head = {"apiVersion": step["version"], "kind": kind, "metadata": {"name": "x"}}
        body = head | (body or {})
    if "manager" in step:
        url += f"?fieldManager={step['manager']}" + ("&force=true" if step.get("force") else "")
    return await server.call(method, url, body, content_type=content_type)


def _seen(answer: LocalAnswer) -> dict[str, Any]:
    document = answer.document
    seen = dict.fromkeys(("message", "spec", "owners"))
    if answer.status >= 300:
        return {**seen, "code": answer.status, "message": document["message"]}
    entries = document["metadata"].get("managedFields", ())
    owners = {_owner(entry): _text(entry["fieldsV1"]) for entry in entries}
    return {**seen, "spec": document.get("spec"), "code": answer.status, "owners": owners}


def _owner(entry: dict[str, Any]) -> str:
    words = (entry["manager"], entry["operation"], entry["apiVersion"])
    return " ".join(filter(None, (*words, entry.get("subresource", ""))))


def _text(owned: dict[str, Any]) -> str:
    return json.dumps(owned, sort_keys=True, separators=(",", ":"))
