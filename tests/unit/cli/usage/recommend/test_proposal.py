"""Requests and limits from what was used."""

from typing import Any

import pytest
import yaml

from kedge.api.apps_v1 import deployment, replica_set
from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.metrics_v1alpha1 import pod
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.targets import ObjectTarget
from kedge.cli.usage.recommend import proposal as recommending
from kedge.cli.usage.recommend import workloads
from kedge.cli.usage.recommend.proposal import DeclaredSizes
from kedge.cli.usage.recommend.show import RecommendOptions, show
from kedge.machinery.quantity import Quantity

END = "2030-01-02T00:00:00Z"


def measured(usual: str, most: str, memory: str = "100Mi", start: str = "") -> Any:
    window = {
        "endtime": END,
        "mean": {"cpu": "1m"},
        "max": {"cpu": most, "memory": memory},
        "95th": {"cpu": usual, "memory": memory},
    }
    short = {**window, "max": {"cpu": "1", "memory": "1Gi"}}
    day = {**window, "starttime": start} if start else window
    containers = [{"metadata": {"name": "main"}, "metrics": {"1h": short, "1d": day}}]
    return pod.RESOURCE.from_document({"metadata": {"name": "a"}, "containers": containers})


def test_34_the_greatest_pod_of_the_day_decides() -> None:
    found = recommending.evidence([measured("100m", "300m"), measured("200m", "250m")], "main")
    request, limit = recommending.proposed("cpu", found["cpu"], 20)
    assert (str(request), str(limit)) == ("200m", "360m")
    assert (found["cpu"].window, found["cpu"].pods) == ("1d", 2)


def test_34_before_an_hour_has_passed_the_hour_decides() -> None:
    found = recommending.evidence([measured("1m", "2m", start="2030-01-01T23:30:00Z")], "main")
    assert (found["cpu"].window, found["cpu"].seconds) == ("1h", 1800)
    assert str(found["cpu"].most) == "1"


def test_nothing_smaller_than_a_container_can_live_with_is_proposed() -> None:
    found = recommending.evidence([measured("10u", "20u", memory="300Ki")], "main")
    assert [str(each) for each in recommending.proposed("cpu", found["cpu"], 20)] == ["10m", "10m"]
    assert [str(each) for each in recommending.proposed("memory", found["memory"], 20)] == [
        "16Mi",
        "16Mi",
    ]


def test_a_container_that_was_not_seen_is_left_alone() -> None:
    declared = {name: DeclaredSizes("containers", {}) for name in ("main", "side")}
    found = {name: recommending.evidence([measured("1", "2")], name) for name in declared}
    sizes = recommending.sized(found, 50)
    patch = recommending.patch(ObjectTarget(deployment.RESOURCE, "web"), "shop", declared, sizes)
    assert patch == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "resources": {
                                "requests": {"cpu": "1", "memory": "100Mi"},
                                "limits": {"cpu": "3", "memory": "150Mi"},
                            },
                        }
                    ]
                }
            }
        },
    }
    alone = recommending.patch(ObjectTarget(core_pod.RESOURCE, "a"), "shop", declared, sizes)
    assert [each["name"] for each in alone["spec"]["containers"]] == ["main"]


@pytest.mark.parametrize(
    ("class_", "cpu"),
    [("Guaranteed", ("12m", "12m")), ("Burstable", ("10m", "12m")), ("", ("10m", "12m"))],
)
def test_a_pod_keeps_its_class_of_service(class_: str, cpu: tuple[str, str]) -> None:
    found = {"main": recommending.evidence([measured("10m", "10m", "1Mi")], "main")}
    sizes = recommending.sized(found, 20, class_)
    assert tuple(str(each) for each in sizes["main"]["cpu"]) == cpu


def test_a_burstable_pod_is_not_made_a_guaranteed_one() -> None:
    found = {"main": recommending.evidence([measured("1m", "1m", "1Mi")], "main")}
    assert [str(x) for x in recommending.sized(found, 20, "Burstable")["main"]["cpu"]] == [
        "10m",
        "11m",
    ]
    assert [str(x) for x in recommending.sized(found, 20)["main"]["cpu"]] == ["10m", "10m"]


ASKING = {"requests": {"cpu": "1"}}


Captured = pytest.CaptureFixture[str]


async def proposal(there: ApiSession, word: str, capsys: Captured) -> tuple[list[str], Any]:
    """The comments and the patch."""
    assert await show(there, RecommendOptions([word])) == 0
    text = capsys.readouterr().out
    return [line for line in text.splitlines() if line[0] == "#"], yaml.safe_load(text)


async def test_a_sidecar_is_sized_and_what_only_prepares_is_not(
    there: ApiSession, usage: Any, capsys: Captured
) -> None:
    spec = {
        "initContainers": [
            {"name": "prepare", "image": "host"},
            {"name": "side", "image": "host", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "main", "image": "host", "resources": ASKING}],
    }
    await usage.pod("default/a", spec)
    usage.report(0.5)
    comments, patch = await proposal(there, "pod/a", capsys)
    assert comments[0] == "# Apply with: kubectl patch pod/a --subresource resize --patch-file FILE"
    assert [each["name"] for each in patch["spec"]["containers"]] == ["main"]
    assert [each["name"] for each in patch["spec"]["initContainers"]] == ["side"]


async def test_a_pod_that_asks_for_nothing_is_told_that_it_cannot_be_resized(
    there: ApiSession, usage: Any, capsys: Captured
) -> None:
    await usage.pod("default/a", {"containers": [{"name": "main", "image": "host"}]})
    usage.report(0.5)
    comments, patch = await proposal(there, "pod/a", capsys)
    assert comments[0].startswith("# A pod that has asked for nothing cannot be resized")
    assert patch["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "500m"


async def test_what_a_pod_used_before_it_ended_counts(
    there: ApiSession, usage: Any, capsys: Captured
) -> None:
    spec = {"containers": [{"name": "main", "image": "host", "resources": ASKING}]}
    await usage.pod("default/a", spec)
    usage.report(0.5, ended=True)
    _, patch = await proposal(there, "pod/a", capsys)
    assert patch["spec"]["containers"][0]["resources"]["requests"]["memory"] == "64Mi"


def owned(name: str, revision: str, template: str) -> Any:
    meta = {
        "name": name,
        "labels": {"pod-template-hash": template},
        "annotations": {"deployment.kubernetes.io/revision": revision},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u"}
        ],
    }
    return replica_set.RESOURCE.from_document({"metadata": meta})


def test_only_pods_of_the_current_template_count() -> None:
    meta = {"uid": "u", "annotations": {"deployment.kubernetes.io/revision": "2"}}
    sets = [owned("web-1", "1", "aaa"), owned("web-2", "2", "bbb")]
    assert workloads.current_replica_set(meta, sets) == "bbb"
    assert workloads.current_replica_set(meta | {"uid": "other"}, sets) == ""


def test_amounts_are_written_for_people() -> None:
    found = {
        "main": recommending.evidence([measured("644021511n", "1200400u", "104860000")], "main")
    }
    declared = {"main": DeclaredSizes("containers", {})}
    target = ObjectTarget(deployment.RESOURCE, "web")
    sizes = recommending.sized(found, 20)
    text = "\n".join(recommending.comments(target, "", declared, found, sizes, 20))
    assert "95th 645m, max 1201m in the 1d window" in text
    assert "memory: 95th 101Mi, max 101Mi" in text


def stored(usual: str, most: str) -> Any:
    found = measured("100m", "200m")
    for window in found.containers[0].metrics.values():
        window.ninety_fifth["ephemeral-storage"] = Quantity.parse(usual)
        window.max["ephemeral-storage"] = Quantity.parse(most)
    return found


STORAGE_LIMIT = {"limits": {"ephemeral-storage": "1Gi"}}


@pytest.mark.parametrize(("now", "limit"), [({}, None), (STORAGE_LIMIT, "120Mi")])
def test_ephemeral_storage_is_requested_and_only_an_existing_limit_is_changed(
    now: Any, limit: str | None
) -> None:
    declared = {"main": DeclaredSizes("containers", now)}
    found = {"main": recommending.evidence([stored("40Mi", "100Mi")], "main")}
    sizes = recommending.sized(found, 20)
    target = ObjectTarget(deployment.RESOURCE, "web")
    patch = recommending.patch(target, "shop", declared, sizes)
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["ephemeral-storage"] == "40Mi"
    assert container["resources"]["limits"].get("ephemeral-storage") == limit
    text = "\n".join(recommending.comments(target, "", declared, found, sizes, 20))
    assert ("limit none (a pod that exceeds one is evicted)" in text) == (limit is None)


def test_a_running_pod_keeps_its_ephemeral_storage() -> None:
    found = {"main": recommending.evidence([stored("40Mi", "100Mi")], "main")}
    sizes = recommending.resizable(recommending.sized(found, 20, "Burstable"))
    assert set(sizes["main"]) == {"cpu", "memory"}
    declared = {"main": DeclaredSizes("containers", {})}
    target = ObjectTarget(core_pod.RESOURCE, "a")
    text = "\n".join(recommending.comments(target, "", declared, found, sizes, 20))
    assert "ephemeral-storage: 95th 40Mi, max 100Mi" in text
    assert "a pod that runs keeps its own" in text
