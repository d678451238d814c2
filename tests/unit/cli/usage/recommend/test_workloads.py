"""Which workloads get a proposal."""

from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.usage.recommend import workloads
from kedge.cli.usage.recommend.proposal import WorkloadUsage, lack, propose
from kedge.testing.local_server import LocalServer

CONTAINERS = [{"name": "main", "image": "host", "resources": {"requests": {"cpu": "1"}}}]
SPEC = {"containers": CONTAINERS}


def template(labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": {**SPEC}}


async def replica_set(
    server: LocalServer, namespace: str, name: str, **fields: Any
) -> dict[str, Any]:
    body = {
        "metadata": {"name": name, "labels": {"app": name, **fields.pop("labels", {})}, **fields},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template({"app": name})},
    }
    made: dict[str, Any] = await server.post(
        f"/apis/apps/v1/namespaces/{namespace}/replicasets", body
    )
    return made


def titles(found: list[WorkloadUsage]) -> list[str]:
    return [f"{each.namespace} {each.title}" for each in found]


async def test_all_namespaces_are_looked_at_and_objects_of_workloads_count_with_them(
    server: LocalServer, there: ApiSession, usage: Any
) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    owner = await replica_set(server, "shop", "web")
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"labels": {"app": "web"}, "ownerReferences": [reference]}
    await usage.pod("shop/web-1", SPEC, metadata)
    await usage.pod("default/lone", SPEC)
    usage.report(0.5)
    found = await workloads.find(there, [], everywhere=True)
    assert titles(found) == ["default pod/lone", "shop replicaset/web"]
    assert [[pod.metadata.name for pod in each.pods] for each in found] == [["lone"], ["web-1"]]
    assert titles(await workloads.find(there, [])) == ["default pod/lone"]
    assert titles(await workloads.find(there, ["rs"], everywhere=True)) == ["shop replicaset/web"]


async def test_workloads_are_chosen_by_their_labels(server: LocalServer, there: ApiSession) -> None:
    for name in ("web", "db"):
        await replica_set(server, "default", name)
    assert titles(await workloads.find(there, [], labels="app=db")) == ["default replicaset/db"]
    with pytest.raises(Failure, match="a name leaves nothing to select"):
        await workloads.find(there, ["rs/web"], labels="app=db")


async def test_a_workload_without_pods_is_listed_with_the_reason(
    server: LocalServer, there: ApiSession
) -> None:
    await replica_set(server, "default", "web")
    path = "/apis/apps/v1/namespaces/default/replicasets/web"
    (found,) = await workloads.find(there, [])
    assert lack(propose(found, 20), 0) == "nothing has been measured of its pods yet"
    await server.merge(path, {"spec": {"replicas": 0}})
    (found,) = await workloads.find(there, [])
    assert lack(propose(found, 20), 0) == "it has no pods"


async def cron_job(server: LocalServer, usage: Any, runs: int) -> None:
    """Make a CronJob, and the Jobs and pods of its runs, which have ended."""
    job_spec = {"template": {"spec": {**SPEC, "restartPolicy": "Never"}}}
    body = {
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": job_spec}},
    }
    made = await server.post("/apis/batch/v1/namespaces/default/cronjobs", body)
    for number in range(runs):
        owner = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": "nightly",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"name": f"nightly-{number}", "ownerReferences": [owner]}
        job = await server.post(
            "/apis/batch/v1/namespaces/default/jobs", {"metadata": metadata, "spec": job_spec}
        )
        uid = job["metadata"]["uid"]
        labels = {"batch.kubernetes.io/controller-uid": uid}
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": f"nightly-{number}",
            "uid": uid,
            "controller": True,
        }
        spec = {"containers": CONTAINERS}
        await usage.pod(
            f"default/nightly-{number}-x", spec, {"labels": labels, "ownerReferences": [reference]}
        )


async def test_the_runs_of_a_cron_job_count_after_they_have_ended(
    server: LocalServer, there: ApiSession, usage: Any
) -> None:
    await cron_job(server, usage, 3)
    usage.report(0.5, ended=True)
    (found,) = await workloads.find(there, [])
    assert found.title == "cronjob/nightly"
    assert len(found.pods) == 3
    proposal = propose(found, 20)
    assert lack(proposal, 3600) == ""
    (container,) = proposal.patch()["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "500m"


async def test_a_cron_job_that_ran_once_gets_no_proposal_unless_the_run_was_long(
    server: LocalServer, there: ApiSession, usage: Any
) -> None:
    await cron_job(server, usage, 1)
    (found,) = await workloads.find(there, ["cronjob/nightly"])
    assert "nothing has been measured" in lack(propose(found, 20), 0)
    usage.report(0.5)
    (found,) = await workloads.find(there, ["cronjobs"])
    assert lack(propose(found, 20), 3600) == "measured in 1 of 3 runs (--min-evidence)"
    assert lack(propose(found, 20), 1700) == ""


async def test_what_has_no_pods_is_refused(server: LocalServer, there: ApiSession) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    await server.post(path, {"metadata": {"name": "a"}})
    with pytest.raises(Failure, match="configmap has no pods of its own"):
        await workloads.find(there, ["cm/a"])
