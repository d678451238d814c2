"""managedFields of custom resources that clients write in two versions: answers of kube-apiserver
are the cases of the table beside this file."""

import json
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.testing.local_server import APPLY, JSON, MERGE, LocalAnswer, LocalServer
from kedge.testing.webhook_server import Asked, WebhookServer, webhook_server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "conv.example.com"
CASES = yaml.safe_load(Path(__file__).with_name("version_owners.yaml").read_text())
TEXT = {"type": "string"}
METHODS = {"apply": "PATCH", "merge": "PATCH", "get": "GET", "create": "POST", "replace": "PUT"}
TYPES = {"apply": APPLY, "merge": MERGE}


def _items(key: str, value: str) -> dict[str, Any]:
    item = {"type": "object", "required": [key], "properties": {key: TEXT, value: TEXT}}
    return {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    }


SHARED = {
    "note": TEXT,
    "level": {"type": "integer", "default": 3},
    "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
}
V1 = {"hostPort": TEXT, "replicas": {"type": "integer"}, "envs": _items("name", "value"), **SHARED}
V2 = {
    "host": TEXT,
    "port": TEXT,
    "size": {"type": "integer"},
    "variables": _items("key", "val"),
    **SHARED,
}


def _version(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    status = {"phase": TEXT, "seen": {"type": "integer"}}
    parts = {
        "spec": {"type": "object", "properties": properties},
        "status": {"type": "object", "properties": status},
    }
    return {
        "name": name,
        "served": True,
        "storage": name == "v1",
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": parts}},
    }


def definition(kind: str, hook: WebhookServer) -> dict[str, Any]:
    conversion: dict[str, Any] = {"strategy": "None"}
    if kind == "host":
        client = {"url": f"{hook.url}/convert", "caBundle": hook.ca_bundle}
        conversion = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
        }
    second = _version("v2", V1 if kind == "same" else V2)
    return {
        "metadata": {"name": f"{kind}s.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": f"{kind}s", "kind": kind.capitalize()},
            "versions": [_version("v1", V1), second],
            "conversion": conversion,
        },
    }


def convert(asked: Asked) -> Asked:
    """Version v1 has a host and its port in one text; other fields have other names in v2."""
    wanted = asked["desiredAPIVersion"]
    turn = _to_v2 if wanted.endswith("/v2") else _to_v1
    objects = []
    for each in deepcopy(asked["objects"]):
        each["apiVersion"] = wanted
        if each.get("spec"):
            turn(each["spec"])
        objects.append(each)
    return {"result": {"status": "Success"}, "convertedObjects": objects}


def _to_v2(spec: dict[str, Any]) -> None:
    if "hostPort" in spec:
        spec["host"], _, port = spec.pop("hostPort").partition(":")
        if port:
            spec["port"] = port
    _rename(spec, {"replicas": "size", "envs": "variables"})
    for each in spec.get("variables", ()):
        _rename(each, {"name": "key", "value": "val"})


def _to_v1(spec: dict[str, Any]) -> None:
    if "host" in spec or "port" in spec:
        host, port = spec.pop("host", ""), spec.pop("port", "")
        spec["hostPort"] = f"{host}:{port}" if port else host
    _rename(spec, {"size": "replicas", "variables": "envs"})
    for each in spec.get("envs", ()):
        _rename(each, {"key": "name", "val": "value"})


def _rename(document: dict[str, Any], names: dict[str, str]) -> None:
    for old, new in names.items():
        if old in document:
            document[new] = document.pop(old)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture
async def hook(keys: Path) -> AsyncIterator[WebhookServer]:
    async with webhook_server(keys) as running:
        running.decisions["/convert"] = convert
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
async def test_owners_are_those_of_upstream(
    server: LocalServer, hook: WebhookServer, case: dict[str, Any]
) -> None:
    await _serve(server, hook, case["kind"])
    for number, step in enumerate(case["steps"]):
        answer = await _done(server, case["kind"], step)
        wanted = {name: step.get(name) for name in ("code", "message", "spec", "status", "owners")}
        assert _seen(answer) == wanted, f"step {number}"
    await server.app.api.caller.close()


async def test_an_apply_names_the_step_at_which_a_webhook_fails(
    server: LocalServer, hook: WebhookServer
) -> None:
    await _serve(server, hook, "host")
    one = {"do": "apply", "version": "v1", "manager": "one", "body": {"spec": {"replicas": 1}}}
    assert (await _done(server, "host", one)).status == 201
    asked = 0

    def fails_at_third(request: Asked) -> Asked:
        nonlocal asked
        asked += 1
        return convert(request) if asked < 3 else {"result": {"message": "out of order"}}

    hook.decisions["/convert"] = fails_at_third
    body = {"spec": {"size": 2}}
    two = {"do": "apply", "version": "v2", "manager": "two", "force": True, "body": body}
    refused = await _done(server, "host", two)
    assert refused.status == 500
    assert refused.document["message"] == (
        "failed to convert new object: "
        f"conversion webhook for {GROUP}/v2, Kind=Host failed: out of order"
    )


async def test_an_entry_of_a_version_that_is_gone_fails_an_apply(
    server: LocalServer, hook: WebhookServer
) -> None:
    await _serve(server, hook, "same")
    first = {"do": "apply", "version": "v2", "manager": "one", "body": {"spec": {"replicas": 1}}}
    assert (await _done(server, "same", first)).status == 201
    live = await server.get(f"{CRDS}/sames.{GROUP}")
    live["spec"]["versions"][1]["name"] = "v3"
    await server.put(f"{CRDS}/sames.{GROUP}", live)
    await server.settle()
    second = {"do": "apply", "version": "v3", "manager": "two", "body": {"spec": {"note": "n"}}}
    refused = await _done(server, "same", second)
    assert refused.status == 500
    told = f"request to convert CR to an invalid group/version: {GROUP}/v2"
    assert refused.document["message"] == told
    merged = {"do": "merge", "version": "v3", "manager": "p", "body": {"spec": {"note": "m"}}}
    assert _seen(await _done(server, "same", merged))["owners"] == {}


async def _serve(server: LocalServer, hook: WebhookServer, kind: str) -> None:
    await server.post(CRDS, definition(kind, hook))
    await server.settle()


async def _done(server: LocalServer, kind: str, step: dict[str, Any]) -> LocalAnswer:
    do, version = step["do"], step["version"]
    url = f"/apis/{GROUP}/{version}/namespaces/default/{kind}s"
    if do != "create":
        url += f"/x/{step['subresource']}" if "subresource" in step else "/x"
    body = step.get("body")
    if do in ("apply", "create"):
        head = {"apiVersion": f"{GROUP}/{version}", "kind": kind.capitalize()}
        meta = {"name": "x", **(body or {}).get("metadata", {})}
        body = {**(body or {}), **head, "metadata": meta}
    elif do == "replace":
        body = {**(await server.get(url)), **(body or {})}
    if "manager" in step:
        url += f"?fieldManager={step['manager']}" + ("&force=true" if step.get("force") else "")
    return await server.call(METHODS[do], url, body, content_type=TYPES.get(do, JSON))


def _seen(answer: LocalAnswer) -> dict[str, Any]:
    document = answer.document
    seen = dict.fromkeys(("message", "spec", "status", "owners"))
    if answer.status >= 300:
        return {**seen, "code": answer.status, "message": document["message"]}
    entries = document["metadata"].get("managedFields", ())
    owners = {_owner(entry): _text(entry["fieldsV1"]) for entry in entries}
    parts = {name: document.get(name) for name in ("spec", "status")}
    return {**seen, **parts, "code": answer.status, "owners": owners}


def _owner(entry: dict[str, Any]) -> str:
    version = entry["apiVersion"].partition("/")[2]
    words = (entry["manager"], entry["operation"], version, entry.get("subresource", ""))
    return " ".join(filter(None, words))


def _text(owned: dict[str, Any]) -> str:
    return json.dumps(owned, sort_keys=True, separators=(",", ":"))
