"""scale: seen from outside."""

from typing import Any

import pytest

from kedge.testing.local_server import JSON_PATCH, MERGE, TABLE, LocalServer

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "d"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


async def make(server: LocalServer) -> Any:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": TEMPLATE}
    return await server.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})


async def test_a_scale_shows_replicas_and_selector(server: LocalServer) -> None:
    made = await make(server)
    await server.merge(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 1}})
    scale = await server.get(f"{DEPLOYMENTS}/d/scale")
    meta = scale.pop("metadata")
    assert scale == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "spec": {"replicas": 2},
        "status": {"replicas": 1, "selector": "app=d"},
    }
    assert set(meta) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
    assert meta["uid"] == made["metadata"]["uid"]


async def test_replication_controllers_have_a_plain_selector(server: LocalServer) -> None:
    spec = {"selector": {"app": "d"}, "template": TEMPLATE}
    await server.post(CONTROLLERS, {"metadata": {"name": "d"}, "spec": spec})
    scale = await server.merge(f"{CONTROLLERS}/d/scale", {"spec": {"replicas": 4}})
    assert scale["spec"] == {"replicas": 4}
    assert scale["status"]["selector"] == "app=d"
    assert (await server.get(f"{CONTROLLERS}/d"))["spec"]["replicas"] == 4


async def test_scaling_changes_the_workload(server: LocalServer) -> None:
    await make(server)
    scale = await server.merge(
        f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 5}}, accept="application/json, */*"
    )
    assert scale["spec"]["replicas"] == 5
    scaled = await server.get(f"{DEPLOYMENTS}/d")
    assert scaled["spec"]["replicas"] == 5
    assert scaled["metadata"]["generation"] == 2
    assert scaled["metadata"]["resourceVersion"] == scale["metadata"]["resourceVersion"]
    scale["spec"]["replicas"] = 0
    put = await server.put(f"{DEPLOYMENTS}/d/scale", scale)
    assert put["spec"] == {"replicas": 0}
    assert (await server.get(f"{DEPLOYMENTS}/d"))["spec"]["replicas"] == 0


async def test_a_scale_honours_the_version(server: LocalServer) -> None:
    await make(server)
    stale = await server.get(f"{DEPLOYMENTS}/d/scale")
    await server.merge(f"{DEPLOYMENTS}/d", {"metadata": {"labels": {"x": "y"}}})
    stale["spec"]["replicas"] = 7
    answer = await server.call("PUT", f"{DEPLOYMENTS}/d/scale", stale)
    assert (answer.status, answer.reason) == (409, "Conflict")
    test = {"op": "test", "path": "/spec/replicas", "value": 9}
    answer = await server.call("PATCH", f"{DEPLOYMENTS}/d/scale", [test], content_type=JSON_PATCH)
    assert answer.status == 422
    assert (await server.get(f"{DEPLOYMENTS}/d"))["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("body", "code", "patched"),
    [
        ({"metadata": {"name": "d"}, "spec": {"replicas": -1}}, 422, 422),
        ({"spec": {"replicas": "3"}}, 400, 422),
        ({"metadata": {"name": "other"}, "spec": {"replicas": 1}}, 400, 400),
        ({"metadata": {"namespace": "other"}, "spec": {"replicas": 1}}, 400, 400),
        ({"kind": "Deployment"}, 400, 422),
        ({"metadata": None}, 400, 400),
    ],
)
async def test_bad_scales_are_refused(
    server: LocalServer, body: Any, code: int, patched: int
) -> None:
    await make(server)
    for method, sort in (("PUT", "application/json"), ("PATCH", MERGE)):
        answer = await server.call(method, f"{DEPLOYMENTS}/d/scale", body, content_type=sort)
        assert answer.status == (patched if sort == MERGE else code)
    assert (await server.get(f"{DEPLOYMENTS}/d"))["spec"]["replicas"] == 2


async def test_a_missing_workload_has_no_scale(server: LocalServer) -> None:
    assert (await server.call("GET", f"{DEPLOYMENTS}/d/scale")).status == 404
    answer = await server.call("PUT", f"{DEPLOYMENTS}/d/scale", {"metadata": {"name": "d"}})
    assert (answer.status, answer.message) == (404, 'deployments.apps "d" not found')


async def test_a_scale_can_be_a_table(server: LocalServer) -> None:
    await make(server)
    table = await server.get(f"{DEPLOYMENTS}/d/scale", accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Desired",
        "Available",
        "Age",
    ]
    assert table["rows"][0]["cells"][:3] == ["d", 2, 0]


async def test_a_dry_run_scales_nothing(server: LocalServer) -> None:
    made = await make(server)
    scale = await server.merge(f"{DEPLOYMENTS}/d/scale?dryRun=All", {"spec": {"replicas": 5}})
    assert scale["spec"]["replicas"] == 5
    assert await server.get(f"{DEPLOYMENTS}/d") == made
