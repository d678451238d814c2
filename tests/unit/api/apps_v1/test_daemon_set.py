from typing import Any

from kedge.api.apps_v1.daemon_set import RESOURCE, TEMPLATE_GENERATION, DaemonSet
from kedge.testing.workloads import workload_document


def daemon_set(change: dict[str, Any] | None = None) -> DaemonSet:
    return RESOURCE.from_document(workload_document(change or {}))


def test_what_is_left_out_is_filled_in() -> None:
    spec = RESOURCE.to_document(RESOURCE.strategy.default(daemon_set()))["spec"]
    assert spec["revisionHistoryLimit"] == 10
    assert spec["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }


def generation(obj: DaemonSet) -> str:
    return obj.metadata.annotations[TEMPLATE_GENERATION]


def test_the_server_counts_the_templates() -> None:
    first = RESOURCE.strategy.default(RESOURCE.strategy.prepare_for_create(daemon_set()))
    same = RESOURCE.strategy.prepare_for_update(daemon_set({"spec": {"minReadySeconds": 5}}), first)
    containers = [{"name": "web", "image": "apache"}]
    change = {
        "metadata": {"annotations": {TEMPLATE_GENERATION: "77"}},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    other = RESOURCE.strategy.prepare_for_update(daemon_set(change), same)
    assert (generation(first), generation(same), generation(other)) == ("1", "1", "2")


def test_counts_are_not_negative() -> None:
    new = daemon_set({"status": {"numberReady": -1}})
    assert [str(error) for error in RESOURCE.strategy.validate_status(new, new)] == [
        "status.numberReady: Invalid value: -1: must be greater than or equal to 0"
    ]


def test_what_kubectl_shows() -> None:
    status = {
        "desiredNumberScheduled": 5,
        "currentNumberScheduled": 4,
        "numberReady": 3,
        "updatedNumberScheduled": 2,
        "numberAvailable": 1,
    }
    pods = {"spec": {"nodeSelector": {"disk": "ssd", "arch": "arm64"}}}
    obj = daemon_set({"spec": {"template": pods}, "status": status})
    assert [column.cell(obj) for column in RESOURCE.presentation.columns[:7]] == [
        "web",
        5,
        4,
        3,
        2,
        1,
        "arch=arm64,disk=ssd",
    ]
    assert RESOURCE.presentation.columns[6].cell(daemon_set()) == "<none>"
