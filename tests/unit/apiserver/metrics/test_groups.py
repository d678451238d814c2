"""The groups of a pod follow its owners, also while the pod itself stays the same."""

from typing import Any

from kedge.apiserver.metrics.groups import CachedPodGroups
from kedge.testing.local_server import LocalServer

APPS = "/apis/apps/v1/namespaces/default"
POD_SPEC = {"containers": [{"name": "main", "image": "host"}]}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC}
SPEC = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}


def owned(by: Any, kind: str, name: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": by["metadata"]["name"]}
    owner |= {"uid": by["metadata"]["uid"], "controller": True}
    return {"name": name, "labels": {"app": "web"}, "ownerReferences": [owner]}


async def web(server: LocalServer) -> None:
    """A Deployment, its ReplicaSet and its pod."""
    body = {"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": SPEC}
    made = await server.post(f"{APPS}/deployments", body)
    meta = owned(made, "Deployment", "web-1")
    replicas = await server.post(f"{APPS}/replicasets", {"metadata": meta, "spec": SPEC})
    meta = owned(replicas, "ReplicaSet", "web-1-a")
    await server.post("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": POD_SPEC})


async def test_labels_of_an_owner_are_seen_before_the_pod_changes(server: LocalServer) -> None:
    await web(server)
    groups = CachedPodGroups(server.app.api.cache)

    def labels() -> dict[str, Any] | None:
        found = groups.of_pod("default", "web-1-a")
        return None if found is None else {each.plural: each.labels for each in found}

    first = labels()
    assert first is not None
    assert first["deployments"] == {"team": "a"}
    assert labels() is None
    await server.merge(f"{APPS}/deployments/web", {"metadata": {"labels": {"team": "b"}}})
    second = labels()
    assert second is not None
    assert second["deployments"] == {"team": "b"}
    assert labels() is None


async def test_an_owner_that_goes_is_seen_before_the_pod_changes(server: LocalServer) -> None:
    await web(server)
    groups = CachedPodGroups(server.app.api.cache)
    assert groups.of_pod("default", "web-1-a")
    orphaning = {"propagationPolicy": "Orphan"}
    await server.call("DELETE", f"{APPS}/deployments/web", orphaning)
    await server.merge(f"{APPS}/deployments/web", {"metadata": {"finalizers": None}})
    found = groups.of_pod("default", "web-1-a")
    assert found is not None
    assert "deployments" not in [each.plural for each in found]
