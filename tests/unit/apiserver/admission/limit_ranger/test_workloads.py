"""Workloads whose pods would be refused are accepted, and whoever applies them is told."""

from typing import Any

import pytest
from tests.unit.apiserver.admission.limit_ranger import documents

from kedge.testing.local_server import LocalServer
from kedge.testing.workloads import job_document, workload_document

LIMIT_RANGES = "/api/v1/namespaces/default/limitranges"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
GREEDY = [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "4"}}}]
MODEST = [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}}}]
WHY = 'pods will be refused by LimitRange "x": maximum cpu usage per Pod is 2, but limit is 4'


def workload(containers: list[dict[str, Any]]) -> dict[str, Any]:
    return workload_document({"spec": {"template": {"spec": {"containers": containers}}}})


def job(containers: list[dict[str, Any]]) -> dict[str, Any]:
    made = job_document({"spec": {"template": {"spec": {"containers": containers}}}})
    return made | {"metadata": {"name": "pi"}}


def cron_job(containers: list[dict[str, Any]]) -> dict[str, Any]:
    spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": job(containers)["spec"]}}
    return {"metadata": {"name": "pi"}, "spec": spec}


def replication_controller(containers: list[dict[str, Any]]) -> dict[str, Any]:
    made = workload(containers)
    made["spec"]["selector"] = {"app": "web"}
    return made


EVERY = [
    (DEPLOYMENTS, workload, "spec.template"),
    ("/apis/apps/v1/namespaces/default/replicasets", workload, "spec.template"),
    ("/apis/apps/v1/namespaces/default/statefulsets", workload, "spec.template"),
    ("/apis/apps/v1/namespaces/default/daemonsets", workload, "spec.template"),
    ("/apis/batch/v1/namespaces/default/jobs", job, "spec.template"),
    ("/apis/batch/v1/namespaces/default/cronjobs", cron_job, "spec.jobTemplate.spec.template"),
    ("/api/v1/namespaces/default/replicationcontrollers", replication_controller, "spec.template"),
]


async def limit(server: LocalServer, *items: dict[str, Any], name: str = "x") -> None:
    await server.post(LIMIT_RANGES, documents.limit_range(name, items))


async def warnings(server: LocalServer, url: str, document: dict[str, Any]) -> list[str]:
    answer = await server.call("POST", url, document)
    assert answer.status == 201, answer.message
    return [text.removeprefix('299 - "').removesuffix('"') for text in answer.warnings]


@pytest.mark.parametrize(("url", "make", "at"), EVERY, ids=lambda value: str(value).split("/")[-1])
async def test_a_template_that_is_against_a_limit_range_draws_a_warning(
    limited: LocalServer, url: str, make: Any, at: str
) -> None:
    await limit(limited, {"type": "Pod", "max": {"cpu": "2"}})
    said = await warnings(limited, f"{url}?dryRun=All", make(GREEDY))
    assert [text.replace("\\", "") for text in said] == [f"{at}: {WHY}"]
    assert await warnings(limited, url, make(MODEST)) == []


async def test_every_constraint_of_every_limit_range_is_told(limited: LocalServer) -> None:
    await limit(limited, {"type": "Container", "min": {"cpu": "5"}}, name="y")
    await limit(limited, {"type": "Pod", "max": {"cpu": "2"}})
    said = await warnings(limited, DEPLOYMENTS, workload(GREEDY))
    assert [text.replace("\\", "") for text in said] == [
        f"spec.template: {WHY}",
        'spec.template: pods will be refused by LimitRange "y": '
        "minimum cpu usage per Container is 5, but request is 4",
    ]


async def test_defaults_are_taken_into_account(limited: LocalServer) -> None:
    bounds = {"min": {"memory": "1Mi"}, "max": {"memory": "1Gi"}, "default": {"memory": "2Mi"}}
    await limit(limited, {"type": "Container", **bounds})
    assert await warnings(limited, DEPLOYMENTS, workload(MODEST)) == []


async def test_a_change_is_judged_again_but_a_status_is_not(limited: LocalServer) -> None:
    await limited.post(DEPLOYMENTS, workload(GREEDY))
    await limit(limited, {"type": "Pod", "max": {"cpu": "2"}})
    url = f"{DEPLOYMENTS}/web"
    stored = await limited.get(url)
    stored["metadata"]["labels"] = {"a": "b"}
    assert len((await limited.call("PUT", url, stored)).warnings) == 1
    stored = await limited.get(url)
    stored["status"] = {"observedGeneration": 1}
    assert (await limited.call("PUT", f"{url}/status", stored)).warnings == []


async def test_without_the_plugin_nobody_is_warned(server: LocalServer) -> None:
    await limit(server, {"type": "Pod", "max": {"cpu": "2"}})
    assert await warnings(server, DEPLOYMENTS, workload(GREEDY)) == []
