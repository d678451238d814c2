"""What every cluster has from its first moment."""

import asyncio
from typing import Any

import pytest

from kedge.apiserver import bootstrap
from kedge.testing.local_server import LocalServer

SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"


async def test_a_new_cluster_has_namespaces_priorities_and_the_api_service(
    server: LocalServer,
) -> None:
    namespaces = await server.get("/api/v1/namespaces")
    assert [item["metadata"]["name"] for item in namespaces["items"]] == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    classes = await server.get("/apis/scheduling.k8s.io/v1/priorityclasses")
    assert {item["metadata"]["name"]: item["value"] for item in classes["items"]} == {
        "system-cluster-critical": 2_000_000_000,
        "system-node-critical": 2_000_001_000,
    }
    service = await server.get("/api/v1/namespaces/default/services/kubernetes")
    assert service["spec"]["clusterIP"] == "10.96.0.1"
    assert service["spec"]["ports"][0]["port"] == 443


async def test_what_is_there_already_is_left_as_it_is(server: LocalServer) -> None:
    await server.merge("/api/v1/namespaces/default", {"metadata": {"labels": {"a": "b"}}})
    before = server.store.revision
    await bootstrap.ensure(server.app.api, "127.0.0.1", 6443)
    assert server.store.revision == before


async def test_deleted_system_objects_come_back(server: LocalServer) -> None:
    lost = "/api/v1/namespaces/kube-node-lease"
    service = "/api/v1/namespaces/default/services/kubernetes"
    # No controller finishes the deletion of a namespace here.
    await server.delete(lost)
    await server.call("PUT", f"{lost}/finalize", await without_finalizers(server, lost))
    await server.delete(service)
    assert (await server.call("GET", lost)).status == 404
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(bootstrap.keep(server.app.api))
        await server.clock.advance(bootstrap.KEEP_SECONDS)
        await server.settle()
        assert (await server.get(lost))["metadata"]["name"] == "kube-node-lease"
        assert (await server.get(service))["spec"]["clusterIP"] == "10.96.0.1"
        keeping.cancel()


async def without_finalizers(server: LocalServer, path: str) -> dict[str, Any]:
    found = await server.get(path)
    return {**found, "spec": {}}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "::", "localhost"])
async def test_an_address_that_no_pod_could_reach_is_not_published(
    server: LocalServer, host: str
) -> None:
    await bootstrap.ensure(server.app.api, host, 6443)
    assert (await server.call("GET", SLICE)).status == 404


async def test_an_address_is_published_and_kept_up_to_date(server: LocalServer) -> None:
    await bootstrap.ensure(server.app.api, "192.0.2.1", 6443)
    await bootstrap.ensure(server.app.api, "192.0.2.2", 7443)
    await server.settle()
    found = await server.get(SLICE)
    assert found["endpoints"][0]["addresses"] == ["192.0.2.2"]
    assert found["ports"][0]["port"] == 7443
    [older] = (await server.get("/api/v1/namespaces/default/endpoints/kubernetes"))["subsets"]
    assert older["addresses"] == [{"ip": "192.0.2.2"}]
    assert older["ports"][0]["port"] == 7443


DNS = "/api/v1/namespaces/kube-system/services/kube-dns"


async def test_the_dns_service_exists_if_nodes_answer_queries(server: LocalServer) -> None:
    assert (await server.call("GET", DNS)).status == 404
    await bootstrap.ensure(server.app.api, "127.0.0.1", 6443, dns=True)
    found = await server.get(DNS)
    assert found["metadata"]["labels"]["k8s-app"] == "kube-dns"
    assert found["spec"]["clusterIP"] == "10.96.0.10"
    assert "selector" not in found["spec"]
    ports = [(each["name"], each["port"], each["protocol"]) for each in found["spec"]["ports"]]
    assert ports == [("dns", 53, "UDP"), ("dns-tcp", 53, "TCP")]


async def test_the_dns_service_gives_way_to_one_that_has_its_address(server: LocalServer) -> None:
    taken = {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}
    path = "/api/v1/namespaces/default/services"
    await server.post(path, {"metadata": {"name": "first"}, "spec": taken})
    await bootstrap.ensure(server.app.api, "127.0.0.1", 6443, dns=True)
    found = await server.get(DNS)
    assert found["spec"]["clusterIP"] not in ("", "10.96.0.10")
