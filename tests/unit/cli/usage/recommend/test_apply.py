"""Applying proposals."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.cli.objects.connection import ApiSession
from kedge.cli.usage.recommend.apply import trial_pod
from kedge.cli.usage.recommend.show import RecommendOptions, show
from kedge.testing.local_server import LocalServer

Captured = pytest.CaptureFixture[str]
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
SPEC = {"containers": [{"name": "main", "image": "host", "resources": RESOURCES}]}
SETS = "/apis/apps/v1/namespaces/{}/replicasets"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=("NamespaceLifecycle", "LimitRanger")) as server:
        yield server


@pytest.fixture
async def sets(server: LocalServer, usage: Any) -> None:
    """A ReplicaSet with a pod in each of two namespaces; one has a LimitRange."""
    for namespace in ("free", "strict"):
        await server.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        labels = {"app": "web"}
        body = {
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": SPEC},
            },
        }
        made = await server.post(SETS.format(namespace), body)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"labels": labels, "ownerReferences": [owner]}
        await usage.pod(f"{namespace}/web-1", SPEC, metadata)
    usage.report(0.25)
    limits = [{"type": "Container", "min": {"memory": "512Mi"}}]
    await server.post(
        "/api/v1/namespaces/strict/limitranges",
        {"metadata": {"name": "least"}, "spec": {"limits": limits}},
    )


async def requested(server: LocalServer, namespace: str) -> str:
    found = await server.get(f"{SETS.format(namespace)}/web")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return str(container["resources"]["requests"]["memory"])


EVERYTHING = RecommendOptions([], everywhere=True, min_seconds=60, apply=True)


@pytest.mark.usefixtures("sets")
async def test_a_dry_run_says_what_would_change_and_changes_nothing(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    await show(there, EVERYTHING._replace(dry_run=True))
    assert capsys.readouterr().out == (
        "replicaset.apps/web in free patched (server dry run)\n"
        "  main cpu: request 1 -> 250m, limit 2 -> 300m\n"
        "  main memory: request 1Gi -> 64Mi, limit 1Gi -> 77Mi\n"
    )
    assert await requested(server, "free") == "1Gi"


@pytest.mark.usefixtures("sets")
async def test_a_workload_whose_pods_a_limit_range_refuses_is_left_and_the_others_are_changed(
    server: LocalServer, there: ApiSession, capsys: Captured
) -> None:
    assert await show(there, EVERYTHING) == 1
    said = capsys.readouterr()
    assert "replicaset.apps/web in free patched\n" in said.out
    assert "error when changing replicaset.apps/web in strict" in said.err
    assert "minimum memory usage per Container is 512Mi" in said.err
    assert await requested(server, "free") == "64Mi"
    assert await requested(server, "strict") == "1Gi"


async def test_a_pod_without_requests_is_skipped_with_the_reason(
    there: ApiSession, usage: Any, capsys: Captured
) -> None:
    await usage.pod("default/a", {"containers": [{"name": "main", "image": "host"}]})
    usage.report(0.25)
    assert await show(there, EVERYTHING) == 0
    assert "pod/a in default skipped: A pod that has asked for" in capsys.readouterr().out


def test_claims_of_a_stateful_set_are_empty_directories_in_the_trial() -> None:
    mount = {"name": "data", "mountPath": "/data"}
    spec = {
        "template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {"containers": [{"name": "main", "volumeMounts": [mount]}]},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    }
    pod = trial_pod("db", {"spec": spec})
    assert pod["metadata"] == {"generateName": "db-", "labels": {"app": "db"}, "annotations": {}}
    assert pod["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
