"""Admission control plugin LimitRanger: every sentence of the proposal that an API server can keep.

The transcript and the flag need real commands; docs/seeds names their end-to-end tests.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.testing.local_server import STRATEGIC, LocalServer

CORE = "/api/v1/namespaces/default"
PODS = f"{CORE}/pods"
LIMIT_RANGES = f"{CORE}/limitranges"
BOUNDS = {"min": {"cpu": "250m", "memory": "1Mi"}, "max": {"cpu": "2", "memory": "1Gi"}}
FITTING = {"cpu": "1", "memory": "64Mi"}


@pytest.fixture
async def limited() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=("NamespaceLifecycle", "LimitRanger")) as running:
        yield running


def limit_range(name: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"limits": list(items)}}


def pod(*amounts: dict[str, str]) -> dict[str, Any]:
    """A pod with one container for each set of amounts, which it requests and is limited to."""
    containers = [
        {
            "name": f"c{number}",
            "image": "busybox",
            "resources": {"requests": each, "limits": each},
        }
        for number, each in enumerate(amounts)
    ]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers}}


# Model changes.


async def test_limit_range_lists_bounds_scoped_to_a_namespace(limited: LocalServer) -> None:
    made = await limited.post(LIMIT_RANGES, limit_range("limits", {"type": "Pod", **BOUNDS}))
    assert (made["kind"], made["metadata"]["namespace"]) == ("LimitRange", "default")
    assert made["spec"] == {"limits": [{"type": "Pod", **BOUNDS}]}
    await limited.post("/api/v1/namespaces", {"metadata": {"name": "free"}})
    too_much = pod({"cpu": "4", "memory": "64Mi"})
    assert (await limited.call("POST", PODS, too_much)).status == 403
    assert (await limited.call("POST", "/api/v1/namespaces/free/pods", too_much)).status == 201


async def test_limit_range_list_holds_the_items_in_its_field_items(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, limit_range("limits", {"type": "Container", **BOUNDS}))
    listed = await limited.get(LIMIT_RANGES)
    assert listed["kind"] == "LimitRangeList"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["limits"]


async def test_a_limit_range_with_an_unknown_type_is_refused(limited: LocalServer) -> None:
    answer = await limited.call("POST", LIMIT_RANGES, limit_range("a", {"type": "Plate"}))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "spec.limits[0].type" in answer.message
    assert (await limited.get(LIMIT_RANGES))["items"] == []


TYPES: dict[str, set[str]] = {
    "LimitRangeItem": {"type", "max", "min"},
    "LimitRangeSpec": {"limits"},
    "LimitRange": {"kind", "apiVersion", "metadata", "spec"},
    "LimitRangeList": {"kind", "apiVersion", "metadata", "items"},
}


@pytest.mark.parametrize("name", TYPES)
async def test_the_types_of_the_document_are_published(limited: LocalServer, name: str) -> None:
    page = await limited.get("/openapi/v3/api/v1")
    published = page["components"]["schemas"][f"io.k8s.api.core.v1.{name}"]
    assert TYPES[name] <= published["properties"].keys()


# The tables of limits: one row a type and resource, once below and once above the bounds.

ROWS = [
    ("Container", "cpu", "100m", "3"),
    ("Container", "memory", "512Ki", "2Gi"),
    ("Pod", "cpu", "100m", "3"),
    ("Pod", "memory", "512Ki", "2Gi"),
]
NAMES = [f"{type_} {resource}" for type_, resource, _, _ in ROWS]


@pytest.mark.parametrize(("type_", "resource", "little", "_much"), ROWS, ids=NAMES)
async def test_minimum_amount_per_type_is_enforced(
    limited: LocalServer, type_: str, resource: str, little: str, _much: str
) -> None:
    await limited.post(LIMIT_RANGES, limit_range("limits", {"type": type_, **BOUNDS}))
    answer = await limited.call("POST", PODS, pod({**FITTING, resource: little}))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    least = BOUNDS["min"][resource]
    assert f"minimum {resource} usage per {type_} is {least}, but request is" in answer.message
    assert (await limited.get(PODS))["items"] == []


@pytest.mark.parametrize(("type_", "resource", "_little", "much"), ROWS, ids=NAMES)
async def test_maximum_amount_per_type_is_enforced(
    limited: LocalServer, type_: str, resource: str, _little: str, much: str
) -> None:
    await limited.post(LIMIT_RANGES, limit_range("limits", {"type": type_, **BOUNDS}))
    answer = await limited.call("POST", PODS, pod({**FITTING, resource: much}))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    most = BOUNDS["max"][resource]
    assert f"maximum {resource} usage per {type_} is {most}, but limit is" in answer.message
    assert (await limited.get(PODS))["items"] == []


async def test_the_amount_of_a_pod_is_the_sum_of_its_containers(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, limit_range("limits", {"type": "Pod", **BOUNDS}))
    answer = await limited.call("POST", PODS, pod(FITTING, FITTING, FITTING))
    assert answer.status == 403
    assert "maximum cpu usage per Pod is 2, but limit is 3" in answer.message
    assert (await limited.call("POST", PODS, pod(FITTING, FITTING))).status == 201


async def test_the_amount_of_a_container_is_its_own(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, limit_range("limits", {"type": "Container", **BOUNDS}))
    assert (await limited.call("POST", PODS, pod(FITTING, FITTING, FITTING))).status == 201


# The plugin.


async def test_all_limit_ranges_of_the_namespace_are_evaluated(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, limit_range("a", {"type": "Pod", "max": {"cpu": "500m"}}))
    await limited.post(LIMIT_RANGES, limit_range("b", {"type": "Pod", "max": {"memory": "1Mi"}}))
    answer = await limited.call("POST", PODS, pod(FITTING))
    assert answer.status == 403
    assert "maximum cpu usage per Pod is 500m, but limit is 1" in answer.message
    assert "maximum memory usage per Pod is 1Mi, but limit is" in answer.message


async def test_a_denial_has_a_message_for_each_constraint_that_was_its_source(
    limited: LocalServer,
) -> None:
    both = [{"type": type_, **BOUNDS} for type_ in ("Pod", "Container")]
    await limited.post(LIMIT_RANGES, limit_range("limits", *both))
    answer = await limited.call("POST", PODS, pod({"cpu": "3", "memory": "512Ki"}))
    assert answer.status == 403
    for type_ in ("Pod", "Container"):
        assert f"maximum cpu usage per {type_} is 2, but limit is 3" in answer.message
        assert f"minimum memory usage per {type_} is 1Mi, but request is" in answer.message


async def test_a_constraint_that_is_not_enumerated_is_not_tracked(limited: LocalServer) -> None:
    only_cpu = {"type": "Container", "min": {"cpu": "250m"}, "max": {"cpu": "2"}}
    await limited.post(LIMIT_RANGES, limit_range("limits", only_cpu))
    stored = await limited.post(PODS, pod({"cpu": "1"}))
    assert stored["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1"},
        "limits": {"cpu": "1"},
    }
    await limited.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await limited.call("POST", PODS, pod({"cpu": "1", "memory": "999Gi"}))).status == 201


# The API server.


async def test_a_server_without_the_plugin_serves_limit_ranges_and_enforces_none(
    server: LocalServer,
) -> None:
    await server.post(LIMIT_RANGES, limit_range("limits", {"type": "Pod", **BOUNDS}))
    assert (await server.call("POST", PODS, pod({"cpu": "99"}))).status == 201


# Future enhancements: limits for a particular pod or container.


async def test_an_item_without_a_selector_matches_purely_on_its_type(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, limit_range("limits", {"type": "Container", **BOUNDS}))
    too_much = pod(FITTING, {"cpu": "4", "memory": "64Mi"})
    for name in ("one", "other"):
        document = {**too_much, "metadata": {"name": name, "labels": {"app": name}}}
        assert (await limited.call("POST", PODS, document)).status == 403


SELECTORS = [
    ("name", {"name": "chosen"}),
    ("label", {"matchLabels": {"app": "web"}}),
    ("field", {"fieldSelector": "metadata.name=chosen"}),
    ("container", {"containerName": "c0"}),
]


@pytest.mark.parametrize(("_by", "selector"), SELECTORS, ids=[by for by, _ in SELECTORS])
async def test_an_item_may_be_restricted_to_particular_pods_and_containers(
    limited: LocalServer, _by: str, selector: dict[str, Any]
) -> None:
    item = {"type": "Container", **BOUNDS, "selector": selector}
    made = await limited.call("POST", LIMIT_RANGES, limit_range("limits", item))
    assert made.status == 201, made.text
    assert "kedge extension" in made.warnings[0]
    too_much = pod({"cpu": "4", "memory": "64Mi"})
    chosen = {**too_much, "metadata": {"name": "chosen", "labels": {"app": "web"}}}
    assert (await limited.call("POST", PODS, chosen)).status == 403
    too_much["spec"]["containers"][0]["name"] = "other"
    assert (await limited.call("POST", PODS, too_much)).status == 201


async def test_an_item_may_be_restricted_to_a_pod_by_uid(limited: LocalServer) -> None:
    stored = await limited.post(PODS, pod(FITTING))
    item = {"type": "Container", **BOUNDS, "selector": {"uid": stored["metadata"]["uid"]}}
    await limited.post(LIMIT_RANGES, limit_range("limits", item))
    larger = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    change = {"spec": {"containers": [{"name": "c0", "resources": larger}]}}
    answer = await limited.call("PATCH", f"{PODS}/p/resize", change, content_type=STRATEGIC)
    assert answer.status == 403
