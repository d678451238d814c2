"""LimitRanger in a server: which writes it has a say in, and what it says.

What it makes of amounts is told by the cases beside this file and by the tests of kedge.api.limits.
"""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.api.limits.defaulting import ANNOTATION
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document
from kedge.testing.workloads import workload_document

HERE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"
BATCH = "/apis/batch/v1/namespaces/default"
SMALL = {"type": "Container", "max": {"cpu": "1"}}
CLAIMS = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}
TOO_MUCH = "maximum cpu usage per Container is 1, but limit is 2"


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=["NamespaceLifecycle", "LimitRanger"]) as running:
        yield running


async def limits(server: LocalServer, *items: dict[str, Any], name: str = "limits") -> None:
    body = {"metadata": {"name": name}, "spec": {"limits": list(items)}}
    await server.post(f"{HERE}/limitranges", body)


def pod(cpu: str = "", **metadata: Any) -> dict[str, Any]:
    container = {"resources": {"limits": {"cpu": cpu}}} if cpu else {}
    return pod_document(metadata=metadata, container=container)


async def test_a_refusal_is_a_403_with_the_name_of_the_pod(server: LocalServer) -> None:
    await limits(server, SMALL)
    answer = await server.call("POST", f"{HERE}/pods", pod("2"))
    assert answer.status == 403
    assert answer.message == f'pods "pod" is forbidden: {TOO_MUCH}'
    assert answer.document["details"] == {"name": "pod", "kind": "pods"}


async def test_limit_ranges_hold_from_the_next_request_on(server: LocalServer) -> None:
    async def refused() -> bool:
        answer = await server.call("POST", f"{HERE}/pods?dryRun=All", pod("2"))
        return answer.status == 403

    assert not await refused()
    await limits(server, SMALL)
    assert await refused()
    wider = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "3"}}]}}
    await server.merge(f"{HERE}/limitranges/limits", wider)
    assert not await refused()
    await limits(server, SMALL, name="other")
    assert await refused()
    await server.delete(f"{HERE}/limitranges/other")
    assert not await refused()


async def test_other_namespaces_are_not_concerned(server: LocalServer) -> None:
    await limits(server, SMALL)
    await server.post("/api/v1/namespaces", {"metadata": {"name": "free"}})
    made = await server.post("/api/v1/namespaces/free/pods", pod("2", namespace="free"))
    assert ANNOTATION not in made["metadata"].get("annotations", {})


async def test_a_pod_may_be_changed_but_not_resized_beyond_its_bounds(server: LocalServer) -> None:
    await server.post(f"{HERE}/pods", pod("2"))
    await limits(server, SMALL)
    url = f"{HERE}/pods/pod"
    await server.merge(url, {"metadata": {"labels": {"a": "b"}}})
    found = await server.get(url)
    found["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "3"},
        "limits": {"cpu": "3"},
    }
    answer = await server.call("PUT", f"{url}/resize", found)
    assert (answer.status, answer.message) == (
        403,
        'pods "pod" is forbidden: maximum cpu usage per Container is 1, but limit is 3',
    )


async def test_a_resize_leaves_metadata_alone(server: LocalServer) -> None:
    amounts = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    await server.post(f"{HERE}/pods", pod_document(container={"resources": amounts}))
    found = await server.get(f"{HERE}/pods/pod")
    found["metadata"]["annotations"] = {"a": "b"}
    found["spec"]["containers"][0]["resources"]["limits"]["memory"] = "3Gi"
    resized = await server.put(f"{HERE}/pods/pod/resize", found)
    assert resized["spec"]["containers"][0]["resources"]["limits"]["memory"] == "3Gi"
    assert "annotations" not in resized["metadata"]


async def test_claims_are_checked_when_made_and_when_changed(server: LocalServer) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    claim = {"metadata": {"name": "v"}, "spec": spec}
    await server.post(f"{HERE}/persistentvolumeclaims", claim)
    await limits(server, CLAIMS)
    change = {"metadata": {"labels": {"a": "b"}}}
    url = f"{HERE}/persistentvolumeclaims/v"
    answer = await server.call("PATCH", url, change, content_type="application/merge-patch+json")
    assert (answer.status, answer.message) == (
        403,
        'persistentvolumeclaims "v" is forbidden: maximum storage usage per '
        "PersistentVolumeClaim is 1Gi, but request is 2Gi",
    )
    assert (await server.call("GET", url)).status == 200


async def test_what_is_ending_is_let_go(server: LocalServer) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    meta = {"name": "v", "finalizers": ["example.com/wait"]}
    await server.post(f"{HERE}/persistentvolumeclaims", {"metadata": meta, "spec": spec})
    await limits(server, CLAIMS)
    url = f"{HERE}/persistentvolumeclaims/v"
    await server.delete(url)
    await server.merge(url, {"metadata": {"finalizers": None}})
    assert (await server.call("GET", url)).status == 404


def workload(cpu: str) -> dict[str, Any]:
    container = {"name": "web", "image": "i", "resources": {"limits": {"cpu": cpu}}}
    return workload_document({"spec": {"template": {"spec": {"containers": [container]}}}})


def warning(path: str = "spec.template", limit_range: str = "limits", why: str = TOO_MUCH) -> str:
    text = f'{path}: pods will be refused by LimitRange \\"{limit_range}\\": {why}'
    return f'299 - "{text}"'


@pytest.mark.parametrize("plural", ["deployments", "statefulsets", "daemonsets", "replicasets"])
async def test_whoever_writes_a_workload_in_vain_is_warned(
    server: LocalServer, plural: str
) -> None:
    await limits(server, SMALL)
    made = await server.call("POST", f"{APPS}/{plural}", workload("2"))
    assert (made.status, made.warnings) == (201, [warning()])
    better = await server.call("PUT", f"{APPS}/{plural}/web", workload("1"))
    assert better.warnings == []


async def test_jobs_of_cron_jobs_are_seen_through(server: LocalServer) -> None:
    await limits(server, SMALL)
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}
    job = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    answer = await server.call("POST", f"{BATCH}/jobs", {"metadata": {"name": "j"}, "spec": job})
    assert answer.warnings == [warning()]
    cron = {"schedule": "* * * * *", "jobTemplate": {"spec": job}}
    answer = await server.call(
        "POST", f"{BATCH}/cronjobs", {"metadata": {"name": "j"}, "spec": cron}
    )
    assert answer.warnings == [warning("spec.jobTemplate.spec.template")]


async def test_each_limit_range_warns_in_its_own_name(server: LocalServer) -> None:
    await limits(server, SMALL, name="b")
    await limits(server, SMALL, {"type": "Pod", "max": {"cpu": "1"}}, name="a")
    url = f"{APPS}/deployments/web?fieldManager=me"
    head = {"apiVersion": "apps/v1", "kind": "Deployment"}
    answer = await server.apply(url, head | workload("2"))
    assert answer.warnings == [
        warning(limit_range="a"),
        warning(limit_range="a", why="maximum cpu usage per Pod is 1, but limit is 2"),
        warning(limit_range="b"),
    ]


async def test_a_status_is_nothing_to_warn_of(server: LocalServer) -> None:
    await server.post(f"{APPS}/deployments", workload("2"))
    await limits(server, SMALL)
    patch = {"status": {"replicas": 1}}
    answer = await server.call(
        "PATCH",
        f"{APPS}/deployments/web/status",
        patch,
        content_type="application/merge-patch+json",
    )
    assert (answer.status, answer.warnings) == (200, [])


async def test_without_the_plugin_limit_ranges_are_only_kept() -> None:
    async with LocalServer.running() as server:
        await limits(server, SMALL)
        assert (await server.call("POST", f"{HERE}/pods", pod("2"))).status == 201
        assert (await server.call("POST", f"{APPS}/deployments", workload("2"))).warnings == []


async def test_a_generated_name_is_the_one_that_a_selector_sees(server: LocalServer) -> None:
    await limits(server, {**SMALL, "selector": {"fieldSelector": "metadata.name!=lucky"}})
    answer = await server.call("POST", f"{HERE}/pods", pod("2", name="", generateName="web-"))
    assert answer.status == 403
    assert answer.message.startswith('pods "web-')
    assert (await server.call("POST", f"{HERE}/pods", pod("2", name="lucky"))).status == 201


async def test_a_limit_range_without_a_name_is_named_by_a_uuid(server: LocalServer) -> None:
    url = f"{HERE}/limitranges"
    made = await server.post(url, {"spec": {"limits": [CLAIMS]}})
    assert uuid.UUID(made["metadata"]["name"]).version == 4
    assert await server.get(f"{url}/{made['metadata']['name']}") == made
