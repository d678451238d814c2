import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from kedge.api.quota.meters import PODS, meter_of
from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.client.informer import Key
from kedge.client.transport import Call, LocalTransport
from kedge.controllers.resource_quota import (
    RECOUNT,
    SETTLE,
    QuotaMonitor,
    ResourceQuotaController,
)
from kedge.testing.admission import admit_only_with
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.testing.pods import pod_document
from kedge.web.message import HttpRequest, Response

CORE = "/api/v1/namespaces/default"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def client_of(server: LocalServer) -> Client:
    def handle(call: Call) -> Response | Awaitable[Response]:
        headers = {**call.headers, "authorization": f"Bearer {TOKEN}"}
        return server.app.handle(
            HttpRequest(call.method, call.path, call.query, headers, call.body)
        )

    return Client(LocalTransport(handle))


class Cluster:
    """A server whose quotas are looked after."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server

    async def quota(self, hard: dict[str, str], name: str = "q", **spec: Any) -> None:
        body = {"metadata": {"name": name}, "spec": {"hard": hard} | spec}
        await self.server.post(f"{CORE}/resourcequotas", body)

    async def used(self, name: str = "q") -> dict[str, str]:
        """What the status says once everybody has had the time to act."""
        for _ in range(5):
            await self.server.clock.advance(0.1)
        quota = await self.server.get(f"{CORE}/resourcequotas/{name}")
        assert quota["status"]["hard"] == quota["spec"]["hard"]
        used: dict[str, str] = quota["status"].get("used", {})
        return used

    async def pod(self, name: str, cpu: str = "1") -> None:
        container = {"resources": {"requests": {"cpu": cpu}}}
        document = pod_document(metadata={"name": name}, container=container)
        await self.server.post(f"{CORE}/pods", document)


@asynccontextmanager
async def looked_after() -> AsyncIterator[Cluster]:
    async with LocalServer.running() as server:
        admit_only_with(server)
        client = client_of(server)
        controller = ResourceQuotaController(client, Discovery(client), server.clock)
        task = server.start(controller.run())
        try:
            yield Cluster(server)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_the_status_follows_the_life_of_objects() -> None:
    async with looked_after() as cluster:
        await cluster.pod("before")
        await cluster.quota({"pods": "9", "requests.cpu": "9", "secrets": "9"})
        assert await cluster.used() == {"pods": "1", "requests.cpu": "1", "secrets": "0"}
        await cluster.pod("after", "500m")
        await cluster.server.post(f"{CORE}/secrets", {"metadata": {"name": "s"}})
        assert await cluster.used() == {"pods": "2", "requests.cpu": "1500m", "secrets": "1"}
        await cluster.server.delete(f"{CORE}/pods/before")
        assert await cluster.used() == {"pods": "1", "requests.cpu": "500m", "secrets": "1"}
        await cluster.server.merge(f"{CORE}/pods/after/status", {"status": {"phase": "Failed"}})
        assert await cluster.used() == {"pods": "0", "requests.cpu": "0", "secrets": "1"}


async def test_a_changed_bound_is_taken_over_and_what_is_no_longer_bounded_goes() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"pods": "9", "services": "9"})
        await cluster.used()
        hard = {"pods": "3", "services": None, "count/configmaps": "5"}
        await cluster.server.merge(f"{CORE}/resourcequotas/q", {"spec": {"hard": hard}})
        await cluster.server.post(f"{CORE}/configmaps", {"metadata": {"name": "c"}})
        assert await cluster.used() == {"pods": "0", "count/configmaps": "1"}


async def test_what_others_write_into_the_status_is_put_right() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"pods": "9"})
        await cluster.used()
        lies = {"hard": {"pods": "99"}, "used": {"pods": "42"}}
        await cluster.server.merge(f"{CORE}/resourcequotas/q/status", {"status": lies})
        assert await cluster.used() == {"pods": "0"}


async def test_what_the_api_server_has_admitted_and_not_stored_yet_stays() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"pods": "9", "secrets": "9"})
        await cluster.pod("p")
        assert await cluster.used() == {"pods": "1", "secrets": "0"}
        status = f"{CORE}/resourcequotas/q/status"
        await cluster.server.merge(status, {"status": {"used": {"pods": "3"}}})
        assert await cluster.used() == {"pods": "3", "secrets": "0"}
        # A new object raises its own amount only.
        await cluster.server.post(f"{CORE}/secrets", {"metadata": {"name": "s"}})
        assert await cluster.used() == {"pods": "3", "secrets": "1"}
        await cluster.server.delete(f"{CORE}/pods/p", {"gracePeriodSeconds": 0})
        assert await cluster.used() == {"pods": "0", "secrets": "1"}


async def test_an_amount_is_not_lowered_while_objects_are_being_admitted() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"pods": "9"})
        await cluster.pod("p")
        assert await cluster.used() == {"pods": "1"}
        quota = f"{CORE}/resourcequotas/q"
        await cluster.server.merge(f"{quota}/status", {"status": {"used": {"pods": "2"}}})
        await cluster.server.delete(f"{CORE}/pods/p", {"gracePeriodSeconds": 0})
        await cluster.server.clock.advance(SETTLE / 2)
        assert (await cluster.server.get(quota))["status"]["used"] == {"pods": "2"}
        await cluster.server.clock.advance(SETTLE)
        assert (await cluster.server.get(quota))["status"]["used"] == {"pods": "0"}


async def test_what_the_api_server_writes_is_not_written_again() -> None:
    async with LocalServer.running(admission=("NamespaceLifecycle", "ResourceQuota")) as server:
        client = client_of(server)
        controller = ResourceQuotaController(client, Discovery(client), server.clock)
        server.start(controller.run())
        cluster = Cluster(server)
        await cluster.quota({"pods": "99"})
        assert await cluster.used() == {"pods": "0"}
        before = server.store.revision
        for i in range(20):
            await cluster.pod(f"p{i}")
            assert (await server.get(f"{CORE}/resourcequotas/q"))["status"]["used"] == {
                "pods": str(i + 1)
            }
        assert await cluster.used() == {"pods": "20"}
        # Two for each pod, all of the API server.
        assert server.store.revision - before == 40


async def test_lowering_that_conflicts_is_repeated() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"pods": "9"})
        await cluster.pod("p")
        assert await cluster.used() == {"pods": "1"}
        quota = f"{CORE}/resourcequotas/q"
        labels = [
            cluster.server.merge(quota, {"metadata": {"labels": {f"l{i}": "x"}}}) for i in range(5)
        ]
        gone = cluster.server.delete(f"{CORE}/pods/p", {"gracePeriodSeconds": 0})
        await asyncio.gather(gone, *labels)
        assert await cluster.used() == {"pods": "0"}


async def test_scopes_decide_what_is_counted() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"pods": "9"}, "lazy", scopes=["BestEffort"])
        await cluster.quota({"pods": "9"}, "busy", scopes=["NotBestEffort"])
        await cluster.pod("p")
        assert await cluster.used("lazy") == {"pods": "0"}
        assert await cluster.used("busy") == {"pods": "1"}


async def test_devices_are_counted_by_their_class() -> None:
    async with looked_after() as cluster:
        name = "gold.deviceclass.resource.k8s.io/devices"
        await cluster.quota({"count/resourceclaims.resource.k8s.io": "9", name: "9"})
        assert await cluster.used() == {"count/resourceclaims.resource.k8s.io": "0", name: "0"}
        request = {"name": "r", "exactly": {"deviceClassName": "gold", "count": 2}}
        claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
        spec = {"devices": {"requests": [request]}}
        await cluster.server.post(claims, {"metadata": {"name": "c"}, "spec": spec})
        assert await cluster.used() == {"count/resourceclaims.resource.k8s.io": "1", name: "2"}
        await cluster.server.delete(f"{claims}/c")
        assert await cluster.used() == {"count/resourceclaims.resource.k8s.io": "0", name: "0"}


async def test_custom_objects_are_counted_from_the_moment_their_kind_exists() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"count/widgets.example.com": "9"})
        assert await cluster.used() == {}
        schema = {"openAPIV3Schema": {"type": "object"}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        names = {"plural": "widgets", "kind": "Widget"}
        spec = {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        }
        await cluster.server.post(CRDS, {"metadata": {"name": "widgets.example.com"}, "spec": spec})
        assert await cluster.used() == {"count/widgets.example.com": "0"}
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
        await cluster.server.post("/apis/example.com/v1/namespaces/default/widgets", widget)
        assert await cluster.used() == {"count/widgets.example.com": "1"}


async def test_a_pod_that_overstays_its_time_is_left_out_at_the_next_full_count() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"pods": "9"})
        document = pod_document(spec={"nodeName": "n"})
        await cluster.server.post(f"{CORE}/pods", document)
        await cluster.server.delete(f"{CORE}/pods/pod", {"gracePeriodSeconds": 30})
        assert await cluster.used() == {"pods": "1"}
        await cluster.server.clock.advance(RECOUNT)
        assert await cluster.used() == {"pods": "0"}


async def test_a_kind_that_was_not_listed_yet_has_no_usage() -> None:
    async with LocalServer.running() as server:
        client = client_of(server)
        controller = ResourceQuotaController(client, Discovery(client), server.clock)
        meter = meter_of(PODS)
        assert meter is not None
        monitor = QuotaMonitor(controller, PODS, meter)
        assert monitor.measure(Key("default", "web")) is None
        assert list(monitor.within("default")) == []


async def test_many_changes_in_a_row_become_few_writes() -> None:
    async with looked_after() as cluster:
        await cluster.quota({"pods": "99"})
        await cluster.used()
        before = cluster.server.store.revision
        for i in range(20):
            await cluster.pod(f"p{i}")
        assert await cluster.used() == {"pods": "20"}
        assert cluster.server.store.revision - before <= 23


async def test_claims_count_as_the_extended_resource_that_their_class_names() -> None:
    async with looked_after() as place:
        name = "requests.d.example/gpu"
        await place.quota({name: "9"})
        request = {"name": "r", "exactly": {"deviceClassName": "gpus", "count": 2}}
        body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
        group = "/apis/resource.k8s.io/v1"
        await place.server.post(f"{group}/namespaces/default/resourceclaims", body)
        assert await place.used() == {name: "0"}
        spec = {"extendedResourceName": "d.example/gpu"}
        await place.server.post(
            f"{group}/deviceclasses", {"metadata": {"name": "gpus"}, "spec": spec}
        )
        assert await place.used() == {name: "2"}
        wants = {
            "resources": {"requests": {"d.example/gpu": "1"}, "limits": {"d.example/gpu": "1"}}
        }
        document = pod_document(metadata={"name": "p"}, container=wants)
        made = await place.server.post(f"{CORE}/pods", document)
        assert await place.used() == {name: "3"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
        body["metadata"] = {
            "name": "e",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}],
        }
        await place.server.post(f"{group}/namespaces/default/resourceclaims", body)
        assert await place.used() == {name: "4"}
        await place.server.delete(f"{group}/namespaces/default/resourceclaims/e")
        assert await place.used() == {name: "3"}
