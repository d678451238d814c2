"""Requests and limits from what was used."""

from typing import Any

from kedge.api.apps_v1 import deployment
from kedge.api.core_v1 import pod as core_pod
from kedge.api.metrics_v1alpha1 import pod
from kedge.cli import recommending
from kedge.cli.targets import Target

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
    found = {name: recommending.evidence([measured("1", "2")], name) for name in ("main", "side")}
    patch = recommending.patch(Target(deployment.RESOURCE, "web"), "shop", found, 50)
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
    alone = recommending.patch(Target(core_pod.RESOURCE, "a"), "shop", found, 50)
    assert [each["name"] for each in alone["spec"]["containers"]] == ["main"]
