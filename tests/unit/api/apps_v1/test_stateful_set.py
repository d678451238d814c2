from typing import Any

from kedge.api.apps_v1.stateful_set import RESOURCE, StatefulSet
from kedge.testing.workloads import workload_document


def stateful_set(change: dict[str, Any] | None = None) -> StatefulSet:
    return RESOURCE.from_document(workload_document(change or {}))


def test_what_is_left_out_is_filled_in() -> None:
    claim = {"metadata": {"name": "data"}}
    obj = stateful_set({"spec": {"volumeClaimTemplates": [claim]}})
    spec = RESOURCE.to_document(RESOURCE.strategy.default(obj))["spec"]
    assert spec["replicas"] == 1
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    assert spec["volumeClaimTemplates"][0]["spec"]["volumeMode"] == "Filesystem"
    assert spec["volumeClaimTemplates"][0]["status"] == {"phase": "Pending"}


def test_a_strategy_without_a_pace_is_left_without() -> None:
    change = {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}
    assert RESOURCE.strategy.default(stateful_set(change)).spec.updateStrategy.rollingUpdate is None


def pace(most: int | None) -> dict[str, Any]:
    return {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": most}}}}


def most_unavailable(obj: StatefulSet) -> object:
    assert obj.spec.updateStrategy.rollingUpdate is not None
    return obj.spec.updateStrategy.rollingUpdate.maxUnavailable


def test_a_field_behind_a_gate_is_kept_only_where_it_was() -> None:
    assert most_unavailable(RESOURCE.strategy.prepare_for_create(stateful_set(pace(2)))) is None
    old, new = stateful_set(pace(None)), stateful_set(pace(2))
    assert most_unavailable(RESOURCE.strategy.prepare_for_update(new, old)) is None
    assert most_unavailable(RESOURCE.strategy.prepare_for_update(new, stateful_set(pace(1)))) == 2


def test_most_of_the_spec_cannot_change() -> None:
    old = RESOURCE.strategy.default(stateful_set())
    free = {"spec": {"replicas": 5, "minReadySeconds": 1, "ordinals": {"start": 3}}}
    assert (
        list(RESOURCE.strategy.validate_update(RESOURCE.strategy.default(stateful_set(free)), old))
        == []
    )
    fixed = RESOURCE.strategy.default(stateful_set({"spec": {"serviceName": "other"}}))
    assert [str(error) for error in RESOURCE.strategy.validate_update(fixed, old)] == [
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', "
        "'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
        "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    ]


def test_parts_of_the_status_add_up() -> None:
    new = stateful_set({"status": {"replicas": 1, "currentReplicas": 2, "availableReplicas": 1}})
    assert [str(error) for error in RESOURCE.strategy.validate_status(new, new)] == [
        "status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas",
    ]


def test_what_kubectl_shows() -> None:
    obj = stateful_set({"spec": {"replicas": 3}, "status": {"readyReplicas": 2}})
    assert [column.name for column in RESOURCE.presentation.columns] == [
        "Name",
        "Ready",
        "Age",
        "Containers",
        "Images",
    ]
    assert RESOURCE.presentation.columns[1].cell(obj) == "2/3"


def test_pods_are_named_after_the_set_so_it_has_a_short_name() -> None:
    assert RESOURCE.strategy.check_name("web") == []
    assert RESOURCE.strategy.check_name("web.site") == ["must not contain dots"]
