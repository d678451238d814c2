"""Kedge's extension: items of a LimitRange that are for some pods, containers or claims only."""

from typing import Any

import pytest
from tests.unit.apiserver.admission.limit_ranger import documents

from kedge.testing.local_server import MERGE, STRATEGIC, LocalServer

CORE = "/api/v1/namespaces/default"
PODS = f"{CORE}/pods"
LIMIT_RANGES = f"{CORE}/limitranges"
SELECTIVE = documents.limit_range(
    "x",
    [
        {"type": "Container", "selector": {"containerName": "a"}, "max": {"cpu": "1"}},
        {"type": "Pod", "selector": {"matchLabels": {"a": "b"}}, "max": {"cpu": "1"}},
        {"type": "Pod", "max": {"cpu": "3"}},
    ],
)


async def test_whoever_uses_a_selector_is_warned(limited: LocalServer) -> None:
    made = await limited.call("POST", LIMIT_RANGES, SELECTIVE)
    assert made.status == 201, made.message
    assert made.warnings == [
        f'299 - "spec.limits[{i}].selector: kedge extension, not portable to other clusters"'
        for i in (0, 1)
    ]
    stored = (await limited.get(f"{LIMIT_RANGES}/x"))["spec"]["limits"]
    assert [item.get("selector") for item in stored] == [
        {"containerName": "a"},
        {"matchLabels": {"a": "b"}},
        None,
    ]


async def test_upstream_knows_no_selector() -> None:
    item = {"type": "Pod", "selector": {"name": "p"}, "max": {"cpu": "1"}}
    selective = documents.limit_range("x", [item])
    plugins = ("NamespaceLifecycle", "LimitRanger")
    async with LocalServer.running(admission=plugins, upstream_only=True) as server:
        strict = await server.call("POST", f"{LIMIT_RANGES}?fieldValidation=Strict", selective)
        assert (strict.status, strict.reason) == (400, "BadRequest")
        assert 'unknown field "spec.limits[0].selector"' in strict.message
        assert (await server.get(LIMIT_RANGES))["items"] == []
        warned = await server.call("POST", f"{LIMIT_RANGES}?fieldValidation=Warn", selective)
        assert warned.warnings == ['299 - "unknown field \\"spec.limits[0].selector\\""']
        assert warned.document["spec"]["limits"] == [{"type": "Pod", "max": {"cpu": "1"}}]


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"type": "Pod", "selector": {}}, "spec.limits[0].selector: Required value"),
        (
            {"type": "Pod", "selector": {"containerName": "a"}},
            "spec.limits[0].selector.containerName: Forbidden",
        ),
        (
            {"type": "Pod", "selector": {"fieldSelector": "spec.colour=red"}},
            'spec.limits[0].selector.fieldSelector: Invalid value: "spec.colour=red"',
        ),
        (
            {"type": "Pod", "selector": {"fieldSelector": "metadata.name"}},
            'spec.limits[0].selector.fieldSelector: Invalid value: "metadata.name"',
        ),
        (
            {"type": "Pod", "selector": {"matchLabels": {"a b": "c"}}},
            "spec.limits[0].selector.matchLabels: Invalid value",
        ),
        (
            {
                "type": "Pod",
                "selector": {"matchExpressions": [{"key": "a", "operator": "Equals"}]},
            },
            "spec.limits[0].selector.matchExpressions[0].operator: Invalid value",
        ),
        (
            {"type": "Pod", "selector": {"name": "Bad_Name"}},
            'spec.limits[0].selector.name: Invalid value: "Bad_Name"',
        ),
        (
            {"type": "Container", "selector": {"containerName": "Bad_Name"}},
            'spec.limits[0].selector.containerName: Invalid value: "Bad_Name"',
        ),
    ],
)
async def test_a_selector_that_selects_nothing_sensible_is_refused(
    limited: LocalServer, item: dict[str, Any], why: str
) -> None:
    made = await limited.call("POST", LIMIT_RANGES, documents.limit_range("x", [item]))
    assert made.status == 422
    assert made.message.removeprefix('LimitRange "x" is invalid: ').lstrip("[").startswith(why)
    assert (await limited.get(LIMIT_RANGES))["items"] == []


async def test_a_type_may_come_again_with_another_selector_but_not_with_the_same(
    limited: LocalServer,
) -> None:
    item = {"type": "Pod", "selector": {"matchLabels": {"a": "b", "c": "d"}}}
    same = {"type": "Pod", "selector": {"matchLabels": {"c": "d", "a": "b"}}}
    other = {"type": "Pod", "selector": {"matchLabels": {"a": "b"}}}
    await limited.post(LIMIT_RANGES, documents.limit_range("good", [item, other, {"type": "Pod"}]))
    made = await limited.call("POST", LIMIT_RANGES, documents.limit_range("bad", [item, same]))
    assert made.status == 422
    assert "spec.limits[1].selector: Duplicate value" in made.message


async def resize(server: LocalServer, name: str, cpu: str) -> str:
    """Try it; says why not."""
    amounts = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    change = {"spec": {"containers": [{"name": "a", "resources": amounts}]}}
    url = f"{PODS}/{name}/resize"
    return (await server.call("PATCH", url, change, content_type=STRATEGIC)).message


async def test_a_uid_selects_one_pod_when_it_is_resized(limited: LocalServer) -> None:
    for name in ("p", "q"):
        short = {"containers": {"a": {"limits": {"cpu": "1"}}}}
        await limited.post(PODS, documents.pod(short, name))
    uid = (await limited.get(f"{PODS}/p"))["metadata"]["uid"]
    item = {"type": "Container", "selector": {"uid": uid}, "max": {"cpu": "2", "memory": "1Gi"}}
    only = {"type": "Pod", "selector": {"uid": uid}, "max": {"cpu": "2"}}
    await limited.post(LIMIT_RANGES, documents.limit_range("x", [only]))
    assert await resize(limited, "q", "3") == ""
    assert await resize(limited, "p", "3") == (
        'pods "p" is forbidden: maximum cpu usage per Pod is 2, but limit is 3'
    )
    await limited.put(f"{LIMIT_RANGES}/x", documents.limit_range("x", [item]))
    assert await resize(limited, "p", "2") == (
        'pods "p" is forbidden: maximum memory usage per Container is 1Gi.  No limit is specified'
    )


async def test_labels_that_a_pod_gets_later_count_from_the_next_resize_on(
    limited: LocalServer,
) -> None:
    await limited.post(LIMIT_RANGES, SELECTIVE)
    short = {"containers": {"b": {"limits": {"cpu": "2"}}}}
    made = documents.pod(short)
    made["spec"]["containers"][0]["name"] = "c"
    await limited.post(PODS, made)
    await limited.merge(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    amounts = {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1500m"}}
    change = {"spec": {"containers": [{"name": "c", "resources": amounts}]}}
    refused = await limited.call("PATCH", f"{PODS}/p/resize", change, content_type=STRATEGIC)
    assert refused.message == (
        'pods "p" is forbidden: maximum cpu usage per Pod is 1, but limit is 1500m'
    )


async def test_a_selector_can_be_taken_away(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, SELECTIVE)
    plain = {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}
    done = await limited.call("PATCH", f"{LIMIT_RANGES}/x", plain, content_type=MERGE)
    assert (done.status, done.warnings) == (200, [])
    short = {"containers": {"b": {"limits": {"cpu": "2"}}}}
    assert (await limited.call("POST", PODS, documents.pod(short))).status == 403
