"""The checklist of the metrics API, point by point, as far as the API server fulfils it."""

from typing import Any

import pytest

from kedge.apiserver.metrics import serve
from kedge.storage.memory import MemoryStore
from kedge.testing.local_server import TABLE, LocalServer

ROOT = "/apis/metrics/v1alpha1"
PODS = f"{ROOT}/namespaces/default/pods"
USAGE = "/apis/metrics.k8s.io"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
STATISTICS = ["mean", "max", "95th"]


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.fixture
async def shop(nodes: Any) -> Any:
    """Two nodes with three pods."""
    await nodes.node("n1", zone="a")
    await nodes.node("n2", zone="b")
    await nodes.pod("web", "n1", app="web", tier="front")
    await nodes.pod("db", "n1", app="db")
    await nodes.pod("web-2", "n2", app="web")
    await nodes.report("n1", "web", "db")
    await nodes.report("n2", "web-2")
    return nodes


async def test_01_usage_of_pods_and_nodes_is_read_through_the_api_server(
    server: LocalServer, shop: Any
) -> None:
    assert names(await server.get(f"{ROOT}/pods")) == ["db", "web", "web-2"]
    assert names(await server.get(f"{ROOT}/nodes")) == ["n1", "n2"]


async def test_02_every_server_has_it_without_being_asked(server: LocalServer) -> None:
    groups = [group["name"] for group in (await server.get("/apis"))["groups"]]
    assert {"metrics", "metrics.k8s.io"} <= set(groups)
    assert groups.index("apps") < groups.index("metrics")


async def test_03_further_resources_need_no_other_schema(server: LocalServer) -> None:
    document = await server.get("/openapi/v3/apis/metrics/v1alpha1")
    metrics = document["components"]["schemas"]["io.k8s.api.metrics.v1alpha1.Metrics"]
    assert metrics["properties"]["95th"]["additionalProperties"]["$ref"].endswith("Quantity")
    assert metrics["properties"]["mean"]["type"] == "object"


async def test_05_only_the_newest_statistics_are_there(server: LocalServer, shop: Any) -> None:
    await server.clock.advance(10)
    await shop.report("n1", "web", "db", cpu=0.5)
    web = await server.get(f"{PODS}/web")
    assert web["containers"][0]["metrics"]["10s"]["mean"]["cpu"] == "500m"
    assert list(web) == ["kind", "apiVersion", "metadata", "containers"]


async def test_06_one_request_gives_all_pods_and_one_gives_a_single_one(
    server: LocalServer, shop: Any
) -> None:
    everything = await server.get(f"{ROOT}/pods")
    assert everything["kind"] == "PodList"
    assert everything["items"][1] == await server.get(f"{PODS}/web")
    node = await server.get(f"{ROOT}/nodes/n1")
    assert node["kind"] == "Node"


async def test_07_nodes_and_pods_are_authorised_apart(server: LocalServer, shop: Any) -> None:
    for plural in ("nodes", "pods"):
        rule = {"apiGroups": ["metrics"], "resources": [plural], "verbs": ["list"]}
        await server.post(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            {"metadata": {"name": f"see-{plural}"}, "rules": [rule]},
        )
        await server.post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": plural},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": f"see-{plural}",
                },
                "subjects": [{"kind": "User", "name": f"{plural}-reader"}],
            },
        )
    for plural, other in (("nodes", "pods"), ("pods", "nodes")):
        who = {"impersonate-user": f"{plural}-reader"}
        assert (await server.call("GET", f"{ROOT}/{plural}", headers=who)).status == 200
        assert (await server.call("GET", f"{ROOT}/{other}", headers=who)).status == 403
        assert (await server.call("GET", f"{USAGE}/v1/{plural}", headers=who)).status == 403


async def test_08_what_serves_every_kind_serves_these_too(server: LocalServer, shop: Any) -> None:
    """Discovery, OpenAPI, Tables, metadata alone, selectors and Status are those of other kinds."""
    (group,) = [
        each
        for each in (await server.get("/apis", accept=DISCOVERY))["items"]
        if each["metadata"]["name"] == "metrics"
    ]
    (pods,) = [each for each in group["versions"][0]["resources"] if each["resource"] == "pods"]
    assert (pods["resource"], pods["scope"]) == ("pods", "Namespaced")
    assert pods["responseKind"]["kind"] == "Pod"
    swagger = await server.get("/openapi/v2")
    kinds = swagger["definitions"]["io.k8s.api.metrics.v1alpha1.Pod"]
    assert kinds["x-kubernetes-group-version-kind"] == [
        {"group": "metrics", "kind": "Pod", "version": "v1alpha1"}
    ]
    outline = await server.get(f"{PODS}/web", accept=PARTIAL)
    assert outline["kind"] == "PartialObjectMetadata"
    assert outline["metadata"]["labels"]["app"] == "web"
    missing = await server.call("GET", f"{PODS}/none")
    assert missing.document["kind"] == "Status"


async def test_09_pods_and_nodes_have_no_metrics_below_them(server: LocalServer, shop: Any) -> None:
    resources = (await server.get("/api/v1"))["resources"]
    assert not [each["name"] for each in resources if "metrics" in each["name"]]
    for path in ("namespaces/default/pods/web/metrics", "nodes/n1/metrics"):
        assert (await server.call("GET", f"/api/v1/{path}")).status == 404
    before = await server.get("/api/v1/namespaces/default/pods/web")
    await server.clock.advance(10)
    await shop.report("n1", "web", "db")
    assert await server.get("/api/v1/namespaces/default/pods/web") == before


async def test_10_a_namespace_or_what_a_controller_made_can_be_added_up(
    server: LocalServer, shop: Any
) -> None:
    """One request has all that a sum needs, for whatever labels stand for, and the server has sums
    of its own beside pods and nodes."""
    listed = await server.get(f"{PODS}?labelSelector=app%3Dweb")
    means = [item["containers"][0]["metrics"]["1h"]["mean"] for item in listed["items"]]
    assert [mean["cpu"] for mean in means] == ["250m", "250m"]
    namespace = await server.get(f"{ROOT}/namespaces/default/namespaceusages/default")
    assert namespace["pods"] == len((await server.get(PODS))["items"])
    assert namespace["total"]["1h"]["mean"]["cpu"] == f"{250 * namespace['pods']}m"


async def test_11_the_root_lists_the_resources(server: LocalServer) -> None:
    found = await server.get(f"{ROOT}/")
    found["resources"] = [each for each in found["resources"] if each["name"] in ("nodes", "pods")]
    assert found == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "metrics/v1alpha1",
        "resources": [
            {
                "name": "nodes",
                "singularName": "node",
                "namespaced": False,
                "kind": "Node",
                "verbs": ["get", "list", "watch"],
            },
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": ["get", "list", "watch"],
            },
        ],
    }


@pytest.mark.parametrize("name", ["nodes/n1", "namespaces/default/pods/web"])
async def test_12_and_14_single_objects_have_their_own_address(
    server: LocalServer, shop: Any, name: str
) -> None:
    found = await server.get(f"{ROOT}/{name}")
    assert found["metadata"]["name"] == name.rpartition("/")[2]
    missing = await server.call("GET", f"{ROOT}/{name}x")
    assert (missing.status, missing.reason) == (404, "NotFound")
    assert missing.document["details"]["group"] == "metrics"


async def test_13_and_14_pods_are_listed_everywhere_or_in_one_namespace(
    server: LocalServer, shop: Any
) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await shop.pod("far", "n2", "other")
    await server.clock.advance(10)
    await shop.report("n2", "web-2", "other/far")
    assert names(await server.get(f"{ROOT}/pods")) == ["db", "web", "web-2", "far"]
    assert names(await server.get(f"{ROOT}/namespaces/other/pods")) == ["far"]
    assert (await server.get(f"{ROOT}/namespaces/nowhere/pods"))["items"] == []


@pytest.mark.parametrize(
    "path",
    [
        "namespaces/",
        "namespaces",
        "namespaces/default",
        "endpoints",
        "namespaces/default/nodes",
        "namespaces/default/pods/web/status",
        "watch/pods",
        "pods/web",
    ],
)
async def test_15_every_other_path_is_not_found(server: LocalServer, shop: Any, path: str) -> None:
    assert (await server.call("GET", f"{ROOT}/{path}")).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_15_nothing_can_be_written(server: LocalServer, shop: Any, method: str) -> None:
    path = f"{PODS}" if method == "POST" else f"{PODS}/web"
    assert (await server.call(method, path, {})).status == 405


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("app=web", ["web", "web-2"]),
        ("app==web,tier", ["web"]),
        ("app!=web", ["db"]),
        ("app in (web,db),!tier", ["db", "web-2"]),
        ("app notin (db)", ["web", "web-2"]),
        ("app=none", []),
    ],
)
async def test_16_lists_are_restricted_by_labels(
    server: LocalServer, shop: Any, selector: str, found: list[str]
) -> None:
    asked = selector.replace("=", "%3D").replace(" ", "%20")
    assert names(await server.get(f"{PODS}?labelSelector={asked}")) == found
    assert names(await server.get(f"{USAGE}/v1beta1/pods?labelSelector={asked}")) == found


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=web", ["web"]),
        ("metadata.name!=web", ["db", "web-2"]),
        ("metadata.namespace=default", ["db", "web", "web-2"]),
        ("spec.nodeName=n1", ["db", "web"]),
        ("spec.nodeName=n1,metadata.name=db", ["db"]),
        ("spec.nodeName=n3", []),
    ],
)
async def test_16_lists_are_restricted_by_fields(
    server: LocalServer, shop: Any, selector: str, found: list[str]
) -> None:
    asked = selector.replace("=", "%3D")
    for path in (PODS, f"{ROOT}/pods"):
        assert names(await server.get(f"{path}?fieldSelector={asked}")) == found


@pytest.mark.parametrize(
    "query", ["fieldSelector=status.phase%3DRunning", "labelSelector=a%20b", "fieldSelector=x"]
)
async def test_16_selectors_that_make_no_sense_are_refused(
    server: LocalServer, shop: Any, query: str
) -> None:
    assert (await server.call("GET", f"{ROOT}/pods?{query}")).status == 400
    assert (await server.call("GET", f"{PODS}/web?{query}")).status == 200
    assert (await server.call("GET", f"{ROOT}/nodes?fieldSelector=spec.nodeName%3Da")).status == 400


async def test_16_pretty_is_for_those_who_ask_or_read_along(server: LocalServer, shop: Any) -> None:
    async def lines(query: str, agent: str) -> int:
        answer = await server.call("GET", PODS + query, headers={"user-agent": agent})
        return answer.text.count("\n")

    assert await lines("?pretty=true", "kubectl/v1") > 50
    assert await lines("", "curl/8.0") > 50
    assert await lines("?pretty=false", "curl/8.0") == 1
    assert await lines("", "kubectl/v1") == 1


async def test_17_only_statistics_are_served_never_samples(server: LocalServer, shop: Any) -> None:
    window = (await server.get(f"{PODS}/web"))["containers"][0]["metrics"]["1m"]
    assert list(window) == ["endtime", *STATISTICS]


async def test_18_a_node_has_a_machine_and_system_containers(
    server: LocalServer, shop: Any
) -> None:
    node = await server.get(f"{ROOT}/nodes/n1")
    assert node["metadata"] == {
        "name": "n1",
        "uid": shop.uids["n1"],
        "resourceVersion": node["metadata"]["resourceVersion"],
        "creationTimestamp": "2029-12-30T00:00:00Z",
        "labels": {"zone": "a"},
    }
    assert node["machine"]["1d"]["max"] == {"cpu": "8", "memory": "6Gi"}
    (kubelet,) = node["systemContainers"]
    assert kubelet["metadata"] == {"name": "kubelet"}
    assert list(kubelet["metrics"]) == ["10s", "1m", "1h", "1d"]


async def test_19_and_20_a_pod_has_containers_by_name(server: LocalServer, nodes: Any) -> None:
    from kedge.metrics.frame_codec import encode

    await nodes.node("n1")
    await nodes.pod("web", "n1", app="web")
    made = nodes.frame("n1", {"default/web": ["main", "side"]})
    await nodes.send("n1", encode(made))
    web = await server.get(f"{PODS}/web")
    assert [each["metadata"] for each in web["containers"]] == [{"name": "main"}, {"name": "side"}]
    assert web["metadata"]["labels"] == {"app": "web"}
    assert web["total"]["1m"]["mean"]["cpu"] == "500m"


async def test_21_all_windows_end_together(server: LocalServer, shop: Any) -> None:
    windows = (await server.get(f"{PODS}/web"))["containers"][0]["metrics"]
    assert {each["endtime"] for each in windows.values()} == {"2030-01-01T00:00:00Z"}
    assert not any("starttime" in each for each in windows.values())


async def test_21_a_window_that_is_not_full_says_when_it_began(
    server: LocalServer, nodes: Any
) -> None:
    await nodes.node("n1")
    await nodes.pod("new", "n1")
    begun = nodes.tick * 10 - 30
    await nodes.report("n1", "new", since=begun)
    windows = (await server.get(f"{PODS}/new"))["containers"][0]["metrics"]
    assert "starttime" not in windows["10s"]
    for length in ("1m", "1h", "1d"):
        assert windows[length]["starttime"] == "2029-12-31T23:59:30Z"


async def test_23_statistics_are_maps_of_quantities(server: LocalServer, shop: Any) -> None:
    window = (await server.get(f"{PODS}/web"))["containers"][0]["metrics"]["1h"]
    assert window == {
        "endtime": "2030-01-01T00:00:00Z",
        "mean": {"cpu": "250m", "memory": "64Mi"},
        "max": {"cpu": "500m", "memory": "128Mi"},
        "95th": {"cpu": "750m", "memory": "192Mi"},
    }


async def test_24_nodes_and_pods_can_be_watched(server: LocalServer, shop: Any) -> None:
    version = (await server.get(PODS))["metadata"]["resourceVersion"]
    pods = await server.watch(f"{PODS}?watch=true&resourceVersion={version}")
    nodes = await server.watch(f"{ROOT}/nodes?watch=true")
    assert await pods.seen() == []
    assert await nodes.seen() == [("ADDED", "n1"), ("ADDED", "n2")]
    await server.clock.advance(10)
    await shop.report("n2", "web-2")
    assert await pods.seen() == [("MODIFIED", "web-2")]
    assert (await nodes.seen())[2:] == [("MODIFIED", "n2")]


async def test_25_a_newer_report_takes_the_place_of_the_last(
    server: LocalServer, shop: Any
) -> None:
    before = await server.get(f"{PODS}/web")
    await server.clock.advance(10)
    await shop.report("n1", "web", "db")
    after = await server.get(f"{PODS}/web")
    assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    assert len((await server.get(PODS))["items"]) == 3


async def test_26_deleting_a_pod_drops_its_metrics_at_once(server: LocalServer, shop: Any) -> None:
    watching = await server.watch(f"{PODS}?watch=true")
    gone = {"gracePeriodSeconds": 0}
    await server.delete("/api/v1/namespaces/default/pods/web", gone)
    assert (await server.call("GET", f"{PODS}/web")).status == 404
    assert names(await server.get(PODS)) == ["db", "web-2"]
    assert (await watching.seen())[-1] == ("DELETED", "web")


async def test_27_nothing_of_it_is_stored(server: LocalServer, shop: Any) -> None:
    revision = server.store.revision
    await server.clock.advance(10)
    await shop.report("n1", "web", "db")
    assert server.store.revision == revision
    async with LocalServer.running(server.store, server.clock) as again:
        assert (await again.get(f"{ROOT}/pods"))["items"] == []


async def test_28_one_batch_brings_all_objects_of_a_node(server: LocalServer, nodes: Any) -> None:
    await nodes.node("n1")
    some = [f"p{number:03}" for number in range(100)]
    for name in some:
        await nodes.pod(name, "n1")
    await nodes.report("n1", *some)
    assert names(await server.get(PODS)) == some
    assert server.app.api.metrics.counts["taken"] == 1


async def test_35_history_is_there_for_schedulers(server: LocalServer, shop: Any) -> None:
    """What best-effort pods are placed by, and what is known of those that are placed already."""
    machine = (await server.get(f"{ROOT}/nodes/n1"))["machine"]
    assert (machine["1m"]["95th"]["cpu"], machine["10s"]["max"]["memory"]) == ("12", "6Gi")
    placed = await server.get(f"{ROOT}/pods?fieldSelector=spec.nodeName%3Dn1")
    day = placed["items"][0]["containers"][0]["metrics"]["1d"]
    assert (day["95th"]["cpu"], day["max"]["memory"]) == ("750m", "128Mi")


async def test_36_autoscalers_read_the_same_in_their_own_group(
    server: LocalServer, shop: Any
) -> None:
    for version in ("v1", "v1beta1"):
        root = f"{USAGE}/{version}"
        listed = await server.get(f"{root}/namespaces/default/pods?labelSelector=app%3Ddb")
        assert (listed["kind"], listed["apiVersion"]) == (
            "PodMetricsList",
            f"metrics.k8s.io/{version}",
        )
        (db,) = listed["items"]
        assert db["containers"] == [{"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}]
        assert (db["timestamp"], db["window"]) == ("2030-01-01T00:00:00Z", "10s")
        assert "kind" not in db
        node = await server.get(f"{root}/nodes/n1")
        assert (node["kind"], node["usage"]) == ("NodeMetrics", {"cpu": "4", "memory": "3Gi"})


async def test_36_the_window_that_autoscalers_see_can_be_chosen(
    server: LocalServer, shop: Any
) -> None:
    server.app.api.metrics.usage_window = "1m"
    root = f"{USAGE}/v1beta1"
    single = await server.get(f"{root}/namespaces/default/pods/db")
    (listed,) = (await server.get(f"{root}/pods?labelSelector=app%3Ddb"))["items"]
    (node, _) = (await server.get(f"{root}/nodes"))["items"]
    assert single["window"] == listed["window"] == node["window"] == "1m0s"


async def test_37_pods_are_served_like_nodes_and_by_the_server_itself(
    server: LocalServer, shop: Any
) -> None:
    """The attempt before had nodes only, copied by another process."""
    for path in ("nodes", "pods"):
        listed = await server.get(f"{ROOT}/{path}")
        assert listed["items"]
        watching = await server.watch(f"{ROOT}/{path}?watch=true")
        assert {type_ for type_, _ in await watching.seen()} == {"ADDED"}
    await server.clock.advance(10)
    await shop.report("n1", "web", "db")
    assert (await watching.seen())[-1][0] == "MODIFIED"


async def test_tables_show_cores_and_megabytes(server: LocalServer, shop: Any) -> None:
    table = await server.get(f"{PODS}?limit=500", accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"][:3]] == ["Name", "CPU", "MEM"]
    assert table["rows"][0]["cells"][:3] == ["db", "0.25 cores", "67 MB"]
    usage = await server.get(f"{USAGE}/v1beta1/pods", accept=TABLE)
    assert usage["rows"][0]["cells"] == ["db", "250m", "64Mi", "10s"]


async def test_long_lists_come_in_pages(
    server: LocalServer, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "PAGED_FROM", 2)
    first = await server.get(f"{PODS}?limit=2")
    assert names(first) == ["db", "web"]
    assert first["metadata"]["remainingItemCount"] == 1
    rest = await server.get(f"{PODS}?limit=2&continue={first['metadata']['continue']}")
    assert names(rest) == ["web-2"]
    assert (await server.call("GET", f"{PODS}?limit=2&continue=%21")).status == 400


async def test_a_past_state_is_not_to_be_had(server: LocalServer, shop: Any) -> None:
    answer = await server.call("GET", f"{PODS}?resourceVersion=5&resourceVersionMatch=Exact")
    assert (answer.status, answer.reason) == (410, "Expired")


async def test_prometheus_gets_all_windows(server: LocalServer, shop: Any) -> None:
    text = (await server.call("GET", "/metrics/usage")).text
    labels = 'node="n1",namespace="default",pod="web",container="main"'
    assert (
        f'kedge_container_cpu_usage_cores{{{labels},window="1d",statistic="95th"}} 0.75\n' in text
    )
    assert text.count("kedge_pod_memory_usage_bytes{") == 3 * 12
    own = (await server.call("GET", "/metrics")).text
    assert 'kedge_node_cpu_usage_cores{node="n2",window="1m",statistic="mean"} 4\n' in own
    assert 'kedge_metrics_frames_total{outcome="taken"} 2\n' in own


async def test_a_restarted_server_sends_old_watchers_back_to_listing(
    server: LocalServer, shop: Any
) -> None:
    version = (await server.get(PODS))["metadata"]["resourceVersion"]
    await server.clock.advance(60)
    async with LocalServer.running(MemoryStore(server.clock), server.clock) as again:
        watching = await again.watch(f"{ROOT}/pods?watch=true&resourceVersion={version}")
        (event,) = await watching.events()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
