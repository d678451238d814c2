"""The metrics API behind another API server: who is believed, and who may read what."""

from itertools import count
from typing import Any

import msgspec
import pytest

from kedge.api.core_v1 import node
from kedge.api.core_v1.pod import pod
from kedge.apiserver.api import Api
from kedge.apiserver.assembly import assemble
from kedge.apiserver.telemetry import Telemetry
from kedge.client.client import Client
from kedge.client.informer import Informer
from kedge.client.transport import Call, Reply, Unreachable
from kedge.client.view import sketches
from kedge.metrics.scrape.cluster import NodeSketch, PodSketch, SketchMeta
from kedge.metrics_server.app import MetricsApp
from kedge.metrics_server.delegated_auth import DelegatedAuth
from kedge.metrics_server.front_proxy import FrontProxy
from kedge.metrics_server.mirror import CacheMirror
from kedge.storage.memory import MemoryStore
from kedge.testing.local_server import TOKEN, LocalServer
from kedge.web.message import HttpRequest

PODS = "/apis/metrics/v1alpha1/namespaces/default/pods"
CERTIFICATE = {
    "subject": ((("commonName", "front-proxy"),),),
    "notAfter": "Jan  1 00:00:00 2040 GMT",
}
PROXY = FrontProxy("ca", frozenset({"front-proxy"}))


class Behind:
    """A metrics server that follows a cluster, without kubelets and without a network."""

    def __init__(self, app: MetricsApp, api: Api) -> None:
        self.app = app
        self.api = api
        self.metrics = api.metrics
        self.cache = api.cache

    async def ask(
        self, path: str, *, method: str = "GET", certificate: Any = None, **headers: str
    ) -> tuple[int, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url, _, query = path.partition("?")
        response = await self.app.handle(HttpRequest(method, url, query, named, b"", certificate))
        body = response.body
        assert not callable(body)
        whole = body if isinstance(body, bytes) else b"".join(body)
        is_json = response.content_type == "application/json"
        return response.status, msgspec.json.decode(whole) if is_json else whole.decode()

    async def proxied(self, path: str, user: str, *groups: str) -> tuple[int, Any]:
        """As the front proxy asks on behalf of somebody."""
        named = {"x_remote_user": user} | ({"x_remote_group": "\n".join(groups)} if groups else {})
        return await self.ask(path, certificate=CERTIFICATE, **named)


@pytest.fixture
async def behind(server: LocalServer, nodes: Any) -> Behind:
    clock = server.clock
    await nodes.node("n1", zone="a")
    await nodes.pod("web", "n1", app="web")
    api = await assemble(MemoryStore(clock), clock, ())
    revisions = count(10)
    mirrored_nodes: CacheMirror[NodeSketch] = CacheMirror(api.cache.of(node.RESOURCE), revisions)
    mirrored_pods: CacheMirror[PodSketch] = CacheMirror(api.cache.of(pod.RESOURCE), revisions)
    client = server.client
    server.start(Informer(client, sketches(node.RESOURCE, NodeSketch), mirrored_nodes, clock).run())
    server.start(Informer(client, sketches(pod.RESOURCE, PodSketch), mirrored_pods, clock).run())
    await server.settle()
    app = MetricsApp(api, DelegatedAuth(client, lambda: PROXY, clock), Telemetry())
    api.metrics.take("n1", nodes.frame("n1", {"default/web": ["main"]}))
    return Behind(app, api)


async def allow(server: LocalServer, user: str, group: str, resource: str) -> None:
    rule = {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
    role = {"metadata": {"name": user}, "rules": [rule]}
    await server.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subjects = [{"kind": "User", "name": user}]
    binding = {"metadata": {"name": user}, "roleRef": ref, "subjects": subjects}
    await server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)


async def test_32_the_proxy_asks_on_behalf_of_those_whom_it_has_recognised(
    server: LocalServer, behind: Behind
) -> None:
    await allow(server, "ann", "metrics", "pods")
    status, web = await behind.proxied(f"{PODS}/web", "ann")
    assert (status, web["metadata"]["labels"]) == (200, {"app": "web"})
    status, refused = await behind.proxied(f"{PODS}/web", "bob")
    assert (status, refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == (
        'pods.metrics "web" is forbidden: User "bob" cannot get resource "pods" in API group'
        ' "metrics" in the namespace "default"'
    )
    assert (await behind.proxied("/apis/metrics/v1alpha1/nodes", "ann"))[0] == 403


async def test_32_clients_may_call_it_directly_with_a_token_of_the_cluster(
    server: LocalServer, behind: Behind
) -> None:
    status, listed = await behind.ask(PODS, authorization=f"Bearer {TOKEN}")
    assert (status, len(listed["items"])) == (200, 1)
    assert (await behind.ask(PODS, authorization="Bearer wrong"))[0] == 401
    assert (await behind.ask(PODS))[0] == 403


async def test_nobody_but_the_proxy_says_who_asks(behind: Behind) -> None:
    status, refused = await behind.ask(PODS, x_remote_user="admin", x_remote_group="system:masters")
    assert (status, "system:anonymous" in refused["message"]) == (403, True)
    other = {**CERTIFICATE, "subject": ((("commonName", "somebody"),),)}
    status, _ = await behind.ask(PODS, certificate=other, x_remote_user="admin")
    assert status == 401
    ended = {**CERTIFICATE, "notAfter": "Jan  1 00:00:00 2029 GMT"}
    status, _ = await behind.ask(PODS, certificate=ended, x_remote_user="admin")
    assert status == 401


async def test_a_group_with_a_comma_in_its_name_is_one_group(behind: Behind) -> None:
    assert (await behind.proxied(PODS, "eve", "devs,system:masters"))[0] == 403
    assert (await behind.proxied(PODS, "root", "devs", "system:masters"))[0] == 200


async def test_the_cluster_is_asked_again_after_a_while(
    server: LocalServer, behind: Behind
) -> None:
    await allow(server, "ann", "metrics", "pods")
    assert (await behind.proxied(PODS, "ann"))[0] == 200
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/ann"
    await server.delete(path)
    assert (await behind.proxied(PODS, "ann"))[0] == 200
    await server.clock.advance(11)
    assert (await behind.proxied(PODS, "ann"))[0] == 403


async def test_it_tells_what_it_serves_and_nothing_else(behind: Behind) -> None:
    status, groups = await behind.proxied("/apis", "system:aggregator", "system:masters")
    assert [group["name"] for group in groups["groups"]] == ["metrics", "metrics.k8s.io"]
    status, listed = await behind.proxied("/apis/metrics.k8s.io/v1beta1", "a", "system:masters")
    assert [each["name"] for each in listed["resources"]] == ["nodes", "pods"]
    for path in ("/apis/apps/v1/deployments", "/api/v1/pods", "/apis/metrics/v1alpha1/services"):
        status, _ = await behind.proxied(path, "a", "system:masters")
        assert status == 404
    status, _ = await behind.ask(f"{PODS}/web", method="DELETE", authorization=f"Bearer {TOKEN}")
    assert status == 405


async def test_a_document_of_before_is_given_as_it_is_now(behind: Behind) -> None:
    """Behind a proxy nobody can be sent elsewhere."""
    path = "/openapi/v3/apis/metrics/v1alpha1?hash=OLD"
    status, document = await behind.proxied(path, "a", "system:masters")
    assert status == 200
    assert "io.k8s.api.metrics.v1alpha1.Pod" in document["components"]["schemas"]


async def test_it_is_ready_once_it_knows_the_cluster(behind: Behind) -> None:
    assert (await behind.ask("/livez"))[0] == 200
    assert (await behind.ask("/readyz"))[0] == 500
    behind.app.ready = True
    assert (await behind.ask("/readyz"))[0] == 200


async def test_a_pod_deleted_in_the_cluster_is_gone_here_too(
    server: LocalServer, behind: Behind
) -> None:
    await server.delete("/api/v1/namespaces/default/pods/web", {"gracePeriodSeconds": 0})
    await server.settle()
    assert (await behind.proxied(PODS, "a", "system:masters"))[1]["items"] == []


async def test_another_pod_of_the_same_name_begins_anew(
    server: LocalServer, behind: Behind
) -> None:
    """Even if it was missed that the first one was deleted."""
    (entry,) = behind.metrics.pods.all()
    mirror: CacheMirror[PodSketch] = CacheMirror(behind.cache.of(pod.RESOURCE), count(1000))
    for uid in (entry.uid, "another"):
        mirror.put(PodSketch(metadata=SketchMeta("web", "default", uid, {"app": "web"})))
    assert (await behind.proxied(PODS, "a", "system:masters"))[1]["items"] == []


class Deaf:
    """A cluster that cannot be reached."""

    async def send(self, call: Call) -> Reply:
        raise Unreachable("gone")

    def stream(self, call: Call) -> Any:
        raise Unreachable("gone")

    async def close(self) -> None:
        pass


async def test_if_the_cluster_cannot_be_asked_nobody_is_let_in(
    server: LocalServer, behind: Behind
) -> None:
    gate = DelegatedAuth(Client(Deaf()), lambda: PROXY, server.clock)
    behind.app = MetricsApp(behind.api, gate, Telemetry())
    assert (await behind.proxied(PODS, "ann"))[0] == 500
    assert (await behind.ask(PODS, authorization="Bearer some"))[0] == 500
