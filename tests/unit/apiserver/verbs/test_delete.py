"""Delete and deletecollection, seen from outside."""

from typing import Any

import pytest

from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def make(server: LocalServer, name: str = "a", **meta: Any) -> Any:
    return await server.post(MAPS, {"metadata": {"name": name, **meta}})


async def make_pod(server: LocalServer, name: str = "p", node: str = "", **meta: Any) -> Any:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if node:
        spec["nodeName"] = node
    return await server.post(PODS, {"metadata": {"name": name, **meta}, "spec": spec})


async def exists(server: LocalServer, url: str) -> bool:
    return (await server.call("GET", url)).status == 200


async def test_deleting_answers_with_a_status(server: LocalServer) -> None:
    made = await make(server)
    answer = await server.call("DELETE", f"{MAPS}/a")
    assert answer.status == 200
    assert answer.document == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    assert not await exists(server, f"{MAPS}/a")
    assert (await server.call("DELETE", f"{MAPS}/a")).status == 404


async def test_the_status_names_the_group(server: LocalServer) -> None:
    body = {"metadata": {"name": "l"}, "spec": {}}
    await server.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", body)
    deleted = await server.delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/l")
    assert deleted["details"]["group"] == "coordination.k8s.io"


@pytest.mark.parametrize("name", ["uid", "resourceVersion"])
async def test_a_precondition_that_does_not_hold_conflicts(server: LocalServer, name: str) -> None:
    made = await make(server)
    body = {"preconditions": {name: "1"}}
    answer = await server.call("DELETE", f"{MAPS}/a", body)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "in the precondition (1) does not match" in answer.message
    assert await exists(server, f"{MAPS}/a")
    await server.delete(f"{MAPS}/a", {"preconditions": {name: made["metadata"][name]}})
    assert not await exists(server, f"{MAPS}/a")


async def test_a_dry_run_deletes_nothing(server: LocalServer) -> None:
    made = await make(server)
    pod = await make_pod(server, node="n")
    for options in ({"query": "?dryRun=All"}, {"body": {"dryRun": ["All"]}}):
        url = f"{MAPS}/a{options.get('query', '')}"
        deleted = await server.delete(url, options.get("body"))
        assert deleted["status"] == "Success"
        dying = await server.delete(f"{PODS}/p{options.get('query', '')}", options.get("body"))
        assert "deletionTimestamp" in dying["metadata"]
    assert await server.get(f"{MAPS}/a") == made
    assert await server.get(f"{PODS}/p") == pod
    answer = await server.call("DELETE", f"{MAPS}/a", {"dryRun": ["Some"]})
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_options_may_stand_in_the_query(server: LocalServer) -> None:
    await make(server)
    deleted = await server.delete(f"{MAPS}/a?propagationPolicy=Foreground")
    assert deleted["metadata"]["finalizers"] == ["foregroundDeletion"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"propagationPolicy": "Sometimes"}, 422),
        ({"propagationPolicy": ""}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"kind": "Pod", "apiVersion": "v1"}, 400),
        ({"gracePeriodSeconds": "soon"}, 400),
        ({"preconditions": []}, 400),
        (b"[]", 400),
    ],
)
async def test_bad_options_are_refused(server: LocalServer, body: Any, code: int) -> None:
    await make(server)
    assert (await server.call("DELETE", f"{MAPS}/a", body)).status == code
    assert await exists(server, f"{MAPS}/a")


async def test_bad_options_in_the_query_are_refused(server: LocalServer) -> None:
    await make(server)
    for query in (
        "gracePeriodSeconds=x",
        f"gracePeriodSeconds={'9' * 5000}",
        "propagationPolicy=Sometimes",
    ):
        assert (await server.call("DELETE", f"{MAPS}/a?{query}")).status in (400, 422)
    assert await exists(server, f"{MAPS}/a")


# Finalizers.


async def test_finalizers_hold_an_object_until_the_last_has_gone(server: LocalServer) -> None:
    await make(server, finalizers=["example.com/x", "example.com/y"])
    watching = await server.watch(f"{MAPS}?watch=true")
    deleted = await server.delete(f"{MAPS}/a")
    assert deleted["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:00Z"
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await server.delete(f"{MAPS}/a")
    assert again == deleted
    one = await server.merge(f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/y"]}})
    assert one["metadata"]["finalizers"] == ["example.com/y"]
    last = await server.merge(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert "finalizers" not in last["metadata"]
    assert not await exists(server, f"{MAPS}/a")
    kinds = [kind for kind, _ in await watching.seen()]
    assert kinds == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


async def test_an_object_that_is_being_deleted_takes_no_new_finalizers(server: LocalServer) -> None:
    await make(server, finalizers=["example.com/x"])
    await server.delete(f"{MAPS}/a")
    body = {"metadata": {"finalizers": ["example.com/x", "example.com/z"]}}
    answer = await server.call(
        "PATCH", f"{MAPS}/a", body, content_type="application/merge-patch+json"
    )
    assert (answer.status, answer.reason) == (422, "Invalid")
    kept = await server.merge(f"{MAPS}/a", {"metadata": {"deletionTimestamp": None}})
    assert "deletionTimestamp" in kept["metadata"]
    taken = await server.call("POST", MAPS, {"metadata": {"name": "a"}})
    assert (taken.status, taken.reason) == (409, "AlreadyExists")
    assert taken.message == 'object is being deleted: configmaps "a" already exists'


async def test_deleting_counts_as_a_change_of_what_is_wanted(server: LocalServer) -> None:
    made = await make_pod(server, node="n")
    assert made["metadata"]["generation"] == 1
    assert (await server.delete(f"{PODS}/p"))["metadata"]["generation"] == 2
    assert (await server.delete(f"{PODS}/p"))["metadata"]["generation"] == 2


# Dependents.


async def test_foreground_waits_with_a_finalizer_and_background_does_not(
    server: LocalServer,
) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        await make(server, policy.lower())
        deleted = await server.delete(f"{MAPS}/{policy.lower()}", {"propagationPolicy": policy})
        assert deleted["metadata"]["finalizers"] == [finalizer]
    await make(server, "b")
    await server.delete(f"{MAPS}/b", {"propagationPolicy": "Background"})
    assert not await exists(server, f"{MAPS}/b")
    await make(server, "c")
    await server.delete(f"{MAPS}/c", {"orphanDependents": False})
    assert not await exists(server, f"{MAPS}/c")
    await make(server, "d")
    deleted = await server.delete(f"{MAPS}/d", {"orphanDependents": True})
    assert deleted["metadata"]["finalizers"] == ["orphan"]


async def test_a_later_policy_replaces_an_earlier_one(server: LocalServer) -> None:
    await make(server)
    await server.delete(f"{MAPS}/a", {"propagationPolicy": "Orphan"})
    kept = await server.delete(f"{MAPS}/a")
    assert kept["metadata"]["finalizers"] == ["orphan"]
    changed = await server.delete(f"{MAPS}/a", {"propagationPolicy": "Foreground"})
    assert changed["metadata"]["finalizers"] == ["foregroundDeletion"]
    await server.delete(f"{MAPS}/a", {"propagationPolicy": "Background"})
    assert not await exists(server, f"{MAPS}/a")


async def test_jobs_leave_their_pods_alone_with_a_warning(server: LocalServer) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    await server.post(JOBS, {"metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}})
    answer = await server.call("DELETE", f"{JOBS}/j")
    assert answer.document["metadata"]["finalizers"] == ["orphan"]
    [warning] = answer.warnings
    assert "child pods are preserved by default when jobs are deleted" in warning
    answer = await server.call("DELETE", f"{JOBS}/j", {"propagationPolicy": "Background"})
    assert answer.warnings == []


# Grace.


async def test_a_pod_on_a_node_gets_time_to_end(server: LocalServer) -> None:
    await make_pod(server, node="n")
    deleted = await server.delete(f"{PODS}/p")
    assert deleted["kind"] == "Pod"
    assert deleted["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:30Z"
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30
    await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert not await exists(server, f"{PODS}/p")


async def test_a_pod_without_a_node_goes_at_once_and_is_shown_once_more(
    server: LocalServer,
) -> None:
    made = await make_pod(server)
    deleted = await server.delete(f"{PODS}/p")
    assert deleted["metadata"]["uid"] == made["metadata"]["uid"]
    assert not await exists(server, f"{PODS}/p")


async def test_watchers_see_the_mark_of_a_pod_that_goes_at_once(server: LocalServer) -> None:
    await make_pod(server)
    watching = await server.watch(f"{PODS}?watch=1")
    await server.delete(f"{PODS}/p")
    events = await watching.events()
    assert [each["type"] for each in events] == ["ADDED", "MODIFIED", "DELETED"]
    for event in events[1:]:
        meta = event["object"]["metadata"]
        assert meta["deletionTimestamp"]
        assert (meta["deletionGracePeriodSeconds"], meta["generation"]) == (0, 2)


async def test_a_mark_that_a_dying_server_left_does_not_hold_a_pod(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise OSError

    await make_pod(server)
    with monkeypatch.context() as patch:
        patch.setattr(server.app.api, "delete", die)
        assert (await server.call("DELETE", f"{PODS}/p")).status >= 500
    marked = await server.get(f"{PODS}/p")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    await server.delete(f"{PODS}/p")
    assert not await exists(server, f"{PODS}/p")


async def test_grace_can_only_be_shortened(server: LocalServer) -> None:
    await make_pod(server, node="n")
    await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 60})
    for options in (None, {"gracePeriodSeconds": 90}):
        longer = await server.delete(f"{PODS}/p", options)
        assert longer["metadata"]["deletionGracePeriodSeconds"] == 60
    shorter = await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 10})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 10
    assert shorter["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:10Z"


async def test_grace_does_not_end_in_the_past(server: LocalServer) -> None:
    await make_pod(server, node="n")
    await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 60})
    await server.clock.advance(30)
    shorter = await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 10})
    assert shorter["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:30Z"
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_grace_may_outlast_the_calendar(server: LocalServer) -> None:
    await make_pod(server, node="n")
    deleted = await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 2**62})
    assert deleted["metadata"]["deletionTimestamp"].startswith("9999-")
    shorter = await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:05Z"


async def test_a_pod_with_finalizers_outlives_its_grace(server: LocalServer) -> None:
    await make_pod(server, node="n", finalizers=["example.com/x"])
    await server.delete(f"{PODS}/p")
    kept = await server.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert kept["metadata"]["deletionGracePeriodSeconds"] == 0
    await server.merge(f"{PODS}/p", {"metadata": {"finalizers": None}})
    assert not await exists(server, f"{PODS}/p")


async def test_without_its_finalizer_a_pod_still_has_its_grace(server: LocalServer) -> None:
    await make_pod(server, node="n", finalizers=["example.com/x"])
    await server.delete(f"{PODS}/p")
    await server.merge(f"{PODS}/p", {"metadata": {"finalizers": None}})
    assert await exists(server, f"{PODS}/p")


# Namespaces.


async def test_a_namespace_terminates_until_it_is_finalized(server: LocalServer) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": "going"}})
    deleted = await server.delete("/api/v1/namespaces/going")
    assert deleted["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in deleted["metadata"]
    deleted["spec"]["finalizers"] = []
    await server.put("/api/v1/namespaces/going/finalize", deleted)
    assert not await exists(server, "/api/v1/namespaces/going")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_some_namespaces_are_for_ever(server: LocalServer, name: str) -> None:
    answer = await server.call("DELETE", f"/api/v1/namespaces/{name}")
    assert (answer.status, answer.reason) == (403, "Forbidden")


# Collections.


async def test_a_collection_is_deleted_by_selector(server: LocalServer) -> None:
    await make(server, "a", labels={"app": "web"})
    await make(server, "b", labels={"app": "web"}, finalizers=["example.com/x"])
    await make(server, "c")
    answer = await server.call("DELETE", f"{MAPS}?labelSelector=app=web")
    assert answer.status == 200
    assert answer.document["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in answer.document["items"]] == ["a", "b"]
    left = await server.get(MAPS)
    assert [item["metadata"]["name"] for item in left["items"]] == ["b", "c"]
    assert "deletionTimestamp" in left["items"][0]["metadata"]


async def test_a_page_of_a_collection_is_deleted(server: LocalServer) -> None:
    for name in ("a", "b", "c"):
        await make(server, name)
    first = (await server.call("DELETE", f"{MAPS}?limit=2")).document
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    assert not await exists(server, f"{MAPS}/a")
    assert await exists(server, f"{MAPS}/c")
    token = first["metadata"]["continue"]
    rest = (await server.call("DELETE", f"{MAPS}?limit=2&continue={token}")).document
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
    assert (await server.get(MAPS))["items"] == []


async def test_a_collection_survives_a_dry_run(server: LocalServer) -> None:
    await make(server, "a")
    await server.delete(f"{MAPS}?dryRun=All")
    assert await exists(server, f"{MAPS}/a")


async def test_namespaces_are_not_deleted_by_the_dozen(server: LocalServer) -> None:
    assert (await server.call("DELETE", "/api/v1/namespaces")).status == 405
    assert (await server.call("DELETE", "/api/v1/configmaps")).status == 405


async def test_racing_deletes_delete_once(server: LocalServer) -> None:
    await make(server)
    answers: list[int] = []
    tasks = [server.start(_delete(server, answers)) for _ in range(5)]
    for task in tasks:
        await task
    assert sorted(answers) == [200, 404, 404, 404, 404]


async def _delete(server: LocalServer, answers: list[int]) -> None:
    answers.append((await server.call("DELETE", f"{MAPS}/a")).status)


async def test_a_write_behind_the_servers_back_is_noticed(server: LocalServer) -> None:
    """Such as an expiry: the store knows before the cache does."""
    await make(server)
    key = "/registry/configmaps/default/a"
    entry = await server.store.get(key)
    assert entry is not None
    await server.store.delete(key, expect=entry.revision)
    assert (await server.call("DELETE", f"{MAPS}/a")).status == 404
    made = await make(server, "b")
    key = "/registry/configmaps/default/b"
    entry = await server.store.get(key)
    assert entry is not None
    await server.store.put(key, entry.value, expect=entry.revision)
    patched = await server.merge(f"{MAPS}/b", {"data": {"x": "1"}})
    assert patched["metadata"]["uid"] == made["metadata"]["uid"]
