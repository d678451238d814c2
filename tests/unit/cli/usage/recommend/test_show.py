"""Proposals as tables, patches and documents."""

import json
from typing import Any

import pytest
import yaml

from kedge.api.metrics_v1alpha1 import pod
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.targets import ObjectTarget
from kedge.cli.usage.recommend.proposal import WorkloadUsage, propose
from kedge.cli.usage.recommend.show import RecommendOptions, judged, show, tables
from kedge.testing.local_server import LocalServer

Captured = pytest.CaptureFixture[str]
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
SPEC = {"containers": [{"name": "main", "image": "host", "resources": RESOURCES}]}


@pytest.fixture
async def two_pods(server: LocalServer, usage: Any) -> None:
    await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    await usage.pod("default/a", SPEC)
    await usage.pod("shop/b", SPEC)
    usage.report(0.25)


async def shown(there: ApiSession, capsys: Captured, **look: Any) -> str:
    assert await show(there, RecommendOptions(look.pop("words", []), **look)) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("two_pods")
async def test_all_workloads_are_in_a_table_with_the_sums(
    there: ApiSession, capsys: Captured
) -> None:
    text = await shown(there, capsys, everywhere=True, min_seconds=60)
    assert [" ".join(line.split()) for line in text.splitlines()[:3]] == [
        "NAMESPACE WORKLOAD CONTAINER PODS CPU REQUEST CPU LIMIT MEMORY REQUEST MEMORY LIMIT"
        " MEASURED",
        "default pod/a main 1 1 -> 250m 2 -> 300m 1Gi -> 64Mi none -> 77Mi 30m, 1 pod",
        "shop pod/b main 1 1 -> 250m 2 -> 300m 1Gi -> 64Mi none -> 77Mi 30m, 1 pod",
    ]
    assert "total         2 -> 500m (-75%)   2Gi -> 128Mi (-94%)" in text
    assert "All pods together request 1500m less cpu and 1920Mi less memory." in text


@pytest.mark.usefixtures("two_pods")
async def test_too_little_evidence_is_said_and_not_guessed_from(
    there: ApiSession, capsys: Captured
) -> None:
    text = await shown(there, capsys)
    assert text == (
        "Without a proposal:\n"
        "WORKLOAD   REASON\n"
        "pod/a      measured for 30m only, less than 60m (--min-evidence)\n"
    )
    assert "1 -> 250m" in await shown(there, capsys, words=["pod/a"], output="table")


@pytest.mark.usefixtures("two_pods")
async def test_the_wide_table_has_the_evidence(there: ApiSession, capsys: Captured) -> None:
    head, row, *_ = (await shown(there, capsys, output="wide", words=["pod/a"])).splitlines()
    assert "CPU 95TH   CPU MAX   MEMORY 95TH   MEMORY MAX   OOM KILLS   THROTTLED   UNTIL" in head
    assert row.split()[-7:-1] == ["250m", "250m", "64Mi", "64Mi", "0", "0%"]


@pytest.mark.usefixtures("two_pods")
async def test_programs_get_the_evidence_the_patches_and_the_sums(
    there: ApiSession, capsys: Captured
) -> None:
    look = {"everywhere": True, "min_seconds": 60.0}
    document = json.loads(await shown(there, capsys, output="json", **look))
    assert yaml.safe_load(await shown(there, capsys, output="yaml", **look)) == document
    first = document["items"][0]
    assert (first["kind"], first["namespace"], first["name"]) == ("Pod", "default", "a")
    assert first["containers"][0]["resources"]["cpu"] == {
        "before": {"request": "1", "limit": "2"},
        "after": {"request": "250m", "limit": "300m"},
        "evidence": {
            "window": "1h",
            "seconds": 1800,
            "samples": 180,
            "pods": 1,
            "95th": "250m",
            "max": "250m",
        },
    }
    assert first["patch"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "300m"
    assert document["requests"]["namespaces"]["shop"]["cpu"]["saved"] == "750m"
    assert document["requests"]["total"]["cpu"] == {
        "before": "2",
        "after": "500m",
        "saved": "1500m",
    }


@pytest.mark.usefixtures("two_pods")
async def test_patches_of_several_workloads_are_several_documents(
    there: ApiSession, capsys: Captured
) -> None:
    text = await shown(there, capsys, output="patch", everywhere=True, min_seconds=60.0)
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(text)]
    assert names == ["a", "b"]


async def test_nothing_known_of_a_named_workload_is_an_error(
    there: ApiSession, usage: Any, capsys: Captured
) -> None:
    await usage.pod("default/a", SPEC)
    with pytest.raises(Failure, match="nothing has been reported lately of pod/a: a pod is meas"):
        await show(there, RecommendOptions(["pod/a"]))
    text = await shown(there, capsys)
    assert "nothing has been measured of its pods yet" in text


async def test_an_empty_namespace_is_said_to_be_empty(there: ApiSession, capsys: Captured) -> None:
    assert await shown(there, capsys) == "No workloads found.\n"


def held_back(**means: str) -> Any:
    """A pod whose container reached its limits."""
    window = {
        "endtime": "2030-01-02T00:00:00Z",
        "mean": {"cpu": "490m", **means},
        "max": {"cpu": "500m", "memory": "100Mi"},
        "95th": {"cpu": "500m", "memory": "100Mi"},
    }
    metrics = {"1h": window, "1d": window}
    return pod.RESOURCE.from_document(
        {
            "metadata": {"name": "a", "namespace": "default"},
            "containers": [{"metadata": {"name": "main"}, "metrics": metrics}],
        }
    )


def workload(*pods: Any) -> WorkloadUsage:
    from kedge.api.apps_v1 import deployment

    limits = {"limits": {"cpu": "1", "memory": "1Gi"}}
    containers = [{"name": "main", "image": "host", "resources": limits}]
    document = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "template": {"spec": {"containers": containers}}},
    }
    return WorkloadUsage(ObjectTarget(deployment.RESOURCE, "web"), "default", document, pods)


def test_a_limit_that_was_reached_is_raised_and_not_lowered() -> None:
    quiet = propose(workload(held_back()), 20).sizes["main"]
    assert [str(quiet[each][1]) for each in ("cpu", "memory")] == ["600m", "120Mi"]
    killed = propose(workload(held_back(**{"oom-kills": "24u"})), 20)
    assert str(killed.sizes["main"]["memory"][1]) == "1229Mi"
    assert "# main: 2 processes were killed in the last day" in "\n".join(killed.comments())
    throttled = propose(workload(held_back(**{"cpu-throttled": "300m"})), 20)
    assert str(throttled.sizes["main"]["cpu"][1]) == "1200m"
    assert "held it back in 30% of the periods" in "\n".join(throttled.comments())


def test_the_sums_count_all_replicas_and_a_limit_is_a_request() -> None:
    sized, unsized = judged([propose(workload(held_back()), 20)], RecommendOptions([]))
    text = "\n".join(tables(sized, unsized, everywhere=False))
    assert "default       3 -> 1500m (-50%)   3Gi -> 300Mi (-90%)" in text


def test_more_is_said_to_be_more() -> None:
    busy = workload(held_back())
    busy.document["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    text = "\n".join(tables([propose(busy, 20)], [], everywhere=False))
    assert "All pods together request 1500m more cpu and 300Mi more memory." in text
