"""status: seen from outside."""

from typing import Any

from kedge.testing.local_server import JSON, MERGE, TABLE, LocalServer

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"


def deployment() -> dict[str, Any]:
    return {
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


async def test_a_write_to_the_status_changes_nothing_else(server: LocalServer) -> None:
    made = await server.post(DEPLOYMENTS, deployment())
    made["status"] = {"replicas": 1, "observedGeneration": 1}
    made["spec"]["replicas"] = 9
    made["metadata"]["labels"] = {"x": "y"}
    put = await server.put(f"{DEPLOYMENTS}/web/status", made)
    assert put["status"] == {"replicas": 1, "observedGeneration": 1}
    assert put["spec"]["replicas"] == 1
    assert "labels" not in put["metadata"]
    assert put["metadata"]["generation"] == 1
    assert put["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert await server.get(f"{DEPLOYMENTS}/web/status") == put
    entry = put["metadata"]["managedFields"][-1]
    assert entry["subresource"] == "status"
    assert entry["fieldsV1"] == {"f:status": {"f:observedGeneration": {}, "f:replicas": {}}}


async def test_a_stale_status_conflicts(server: LocalServer) -> None:
    made = await server.post(DEPLOYMENTS, deployment())
    await server.merge(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 2}})
    answer = await server.call("PUT", f"{DEPLOYMENTS}/web/status", made)
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_a_status_is_patched_and_a_missing_one_is_not(server: LocalServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    url = f"{DEPLOYMENTS}/web/status"
    patched = await server.merge(url, {"status": {"replicas": 3}, "spec": {"replicas": 7}})
    assert patched["status"]["replicas"] == 3
    assert patched["spec"]["replicas"] == 1
    for method, sort in (("PUT", JSON), ("PATCH", MERGE)):
        url = f"{DEPLOYMENTS}/none/status"
        assert (
            await server.call(method, url, {"metadata": {"name": "none"}}, content_type=sort)
        ).status == 404


async def test_pods_take_labels_with_their_status(server: LocalServer) -> None:
    await server.post(
        PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    patched = await server.merge(
        f"{PODS}/p/status",
        {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}},
    )
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert patched["status"]["phase"] == "Running"


async def test_a_status_without_change_is_no_write(server: LocalServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    first = await server.merge(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 3}})
    await server.clock.advance(5)
    again = await server.merge(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 3}})
    assert again == first


async def test_a_status_can_be_a_table(server: LocalServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    assert (await server.get(f"{DEPLOYMENTS}/web/status", accept=TABLE))["kind"] == "Table"


async def test_verbs_that_a_subresource_has_not(server: LocalServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    assert (await server.call("POST", f"{DEPLOYMENTS}/web/status", {})).status == 405
    assert (await server.call("DELETE", f"{DEPLOYMENTS}/web/status")).status == 405
    assert (await server.call("GET", f"{DEPLOYMENTS}/web/nothing")).status == 404


CHANGED = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "status": {}}


async def metadata_after_status_write(server: LocalServer, url: str, name: str) -> Any:
    """The labels and annotations of an object whose status was written with others."""
    meta = (await server.merge(f"{url}/{name}/status", CHANGED))["metadata"]
    return meta.get("labels", {}), meta.get("annotations", {})


async def test_a_write_to_the_status_may_change_labels_and_annotations(server: LocalServer) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await server.post(PODS, pod)
    assert await metadata_after_status_write(server, PODS, "p") == ({"a": "b"}, {"c": "d"})


async def test_the_status_of_a_deployment_leaves_its_labels(server: LocalServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    assert await metadata_after_status_write(server, DEPLOYMENTS, "web") == ({}, {"c": "d"})


async def test_some_kinds_keep_all_metadata_when_their_status_is_written(
    server: LocalServer,
) -> None:
    url = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    spec = {"priorityLevelConfiguration": {"name": "exempt"}}
    await server.post(url, {"metadata": {"name": "f"}, "spec": spec})
    assert await metadata_after_status_write(server, url, "f") == ({}, {})
