"""What only kedge knows: warned of where it is used, unknown where only Kubernetes' own counts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.testing.local_server import JSON_PATCH, STRATEGIC, LocalServer

LIMITS = "/api/v1/namespaces/default/limitranges"
NAME = "spec.limits[0].selector"
WARNING = f'299 - "{NAME}: kedge extension, not portable to other clusters"'
UNKNOWN = f'unknown field \\"{NAME}\\"'


def document(selector: dict[str, Any] | None = None, **amounts: Any) -> dict[str, Any]:
    item = {"type": "Pod", "max": {"cpu": "1"}} | amounts
    if selector is not None:
        item["selector"] = selector
    meta = {"name": "limits"}
    head = {"apiVersion": "v1", "kind": "LimitRange"}
    return head | {"metadata": meta, "spec": {"limits": [item]}}


SELECTED = document({"name": "web"})
PLUGINS = ("NamespaceLifecycle", "LimitRanger")


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=PLUGINS) as running:
        yield running


async def test_every_way_to_write_an_extension_is_warned_of(server: LocalServer) -> None:
    url = f"{LIMITS}/limits"
    answers = [
        await server.call("POST", LIMITS, SELECTED),
        await server.call("PUT", url, SELECTED),
        await server.call(
            "PATCH",
            url,
            [{"op": "add", "path": "/spec/limits/0/selector", "value": {"name": "x"}}],
            content_type=JSON_PATCH,
        ),
        await server.call("PATCH", url, {"spec": SELECTED["spec"]}, content_type=STRATEGIC),
        await server.apply(f"{url}?fieldManager=me&force=true", SELECTED),
    ]
    assert [answer.status for answer in answers] == [201, 200, 200, 200, 200]
    assert [answer.warnings for answer in answers] == [[WARNING]] * 5


async def test_a_manifest_without_extensions_draws_no_warning(server: LocalServer) -> None:
    assert (await server.call("POST", LIMITS, document())).warnings == []


async def test_it_is_kept_owned_and_published(server: LocalServer) -> None:
    made = await server.post(LIMITS, SELECTED)
    assert made["spec"]["limits"][0]["selector"] == {"name": "web"}
    items = (await server.get("/openapi/v3/api/v1"))["components"]["schemas"]
    assert "selector" in items["io.k8s.api.core.v1.LimitRangeItem"]["properties"]
    assert "io.k8s.api.core.v1.LimitRangeSelector" in items


async def test_upstream_has_no_such_field() -> None:
    async with LocalServer.running(admission=PLUGINS, upstream_only=True) as server:
        strict = await server.call("POST", f"{LIMITS}?fieldValidation=Strict", SELECTED)
        assert strict.status == 400
        assert f'strict decoding error: unknown field "{NAME}"' in strict.message
        warned = await server.call("POST", LIMITS, SELECTED)
        assert warned.warnings == [f'299 - "{UNKNOWN}"']
        assert "selector" not in warned.document["spec"]["limits"][0]
        ignored = await server.call("PUT", f"{LIMITS}/limits?fieldValidation=Ignore", SELECTED)
        assert (ignored.status, ignored.warnings) == (200, [])
        applied = await server.apply(f"{LIMITS}/limits?fieldManager=me&force=true", SELECTED)
        assert "field not declared in schema" in applied.message


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/api/v1"])
async def test_upstream_publishes_no_such_field(path: str) -> None:
    async with LocalServer.running(upstream_only=True) as server:
        page = await server.get(path)
    types = page.get("definitions") or page["components"]["schemas"]
    assert "selector" not in types["io.k8s.api.core.v1.LimitRangeItem"]["properties"]
    assert "io.k8s.api.core.v1.LimitRangeSelector" not in types


async def test_what_was_stored_before_can_still_be_written(server: LocalServer) -> None:
    await server.post(LIMITS, SELECTED)
    async with LocalServer.running(server.store, upstream_only=True) as strict:
        url = f"{LIMITS}/limits"
        labelled = await strict.merge(url, {"metadata": {"labels": {"a": "b"}}})
        assert labelled["spec"]["limits"] == document()["spec"]["limits"]
        assert (await strict.apply(f"{url}?fieldManager=me&force=true", document())).status == 200
