from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.quota.measure import QuotaMeasure
from kedge.api.quota.pods import PodQuotaMeter
from kedge.machinery.durations import parse_time
from kedge.testing.pods import new_pod

METER = PodQuotaMeter()


def shown(measure: QuotaMeasure) -> dict[str, str]:
    return {name: str(amount) for name, amount in measure.usage.items()}


def asking(requests: dict[str, str], limits: dict[str, str] | None = None, **spec: Any) -> Pod:
    resources = {"requests": requests, "limits": limits or {}}
    return new_pod(container={"resources": resources}, spec=spec)


def test_a_pod_that_asks_for_nothing_counts_as_one() -> None:
    assert shown(METER.measure(new_pod())) == {"count/pods": "1", "pods": "1"}


def test_requests_count_with_and_without_their_prefix_and_limits_only_with_it() -> None:
    pod = asking({"cpu": "100m", "memory": "1Gi"}, {"cpu": "1", "ephemeral-storage": "1G"})
    assert shown(METER.measure(pod)) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "100m",
        "requests.cpu": "100m",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "ephemeral-storage": "1G",
        "requests.ephemeral-storage": "1G",
        "limits.cpu": "1",
        "limits.ephemeral-storage": "1G",
    }


def test_devices_count_only_as_requests_and_huge_pages_both_ways() -> None:
    amounts = {"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "cpu": "1"}
    usage = shown(METER.measure(asking(amounts, amounts)))
    assert usage["requests.example.com/gpu"] == "2"
    assert "example.com/gpu" not in usage
    assert usage["hugepages-2Mi"] == usage["requests.hugepages-2Mi"] == "4Mi"
    assert "limits.hugepages-2Mi" not in usage


def test_an_init_container_counts_if_it_needs_more_than_all_others_together() -> None:
    def container(name: str, cpu: str, **more: str) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}} | more

    spec = {
        "initContainers": [
            container("sidecar", "100m", restartPolicy="Always"),
            container("first", "500m"),
        ],
        "containers": [container("a", "200m"), container("b", "200m")],
    }
    assert shown(METER.measure(new_pod(spec=spec)))["requests.cpu"] == "600m"


def test_limits_count_without_requests() -> None:
    pod = asking({}, {"cpu": "2"})
    (container,) = pod.spec.containers
    bare = replace(container, resources=replace(container.resources, requests={}))
    usage = shown(METER.measure(replace(pod, spec=replace(pod.spec, containers=[bare]))))
    assert usage == {"count/pods": "1", "pods": "1", "limits.cpu": "2"}


def test_overhead_is_added_to_requests_and_to_limits_that_exist() -> None:
    pod = asking(
        {"cpu": "1", "memory": "1Gi"}, {"cpu": "1"}, overhead={"cpu": "1", "memory": "1Gi"}
    )
    usage = shown(METER.measure(pod))
    assert (usage["requests.cpu"], usage["limits.cpu"]) == ("2", "2")
    assert usage["requests.memory"] == "2Gi"
    assert "limits.memory" not in usage


def test_resources_of_the_whole_pod_win_over_the_sum_of_its_containers() -> None:
    pod = asking({"cpu": "1"}, resources={"requests": {"cpu": "3"}, "limits": {"cpu": "4"}})
    usage = shown(METER.measure(pod))
    assert (usage["requests.cpu"], usage["limits.cpu"]) == ("3", "4")


def resized(conditions: list[dict[str, str]]) -> Pod:
    """Wants one cpu, and holds two until the node has acted."""
    document = RESOURCE.to_document(asking({"cpu": "1"}, {"cpu": "1"}))
    held = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    status = {"name": "ctr", "resources": held, "allocatedResources": {"cpu": "3"}}
    document["status"] = {"containerStatuses": [status], "conditions": conditions}
    return RESOURCE.from_document(document)


def test_what_a_container_still_holds_counts_while_it_is_resized() -> None:
    usage = shown(METER.measure(resized([])))
    assert (usage["requests.cpu"], usage["limits.cpu"]) == ("3", "2")


@pytest.mark.parametrize(
    ("kind", "reason", "counted"),
    [
        ("PodResizePending", "Infeasible", ("3", "2")),
        ("PodResizePending", "Deferred", ("9", "9")),
        ("PodResizeInProgress", "Infeasible", ("9", "9")),
    ],
)
def test_only_an_impossible_resize_does_not_count(
    kind: str, reason: str, counted: tuple[str, str]
) -> None:
    pod = asking({"cpu": "9"}, {"cpu": "9"})
    condition = {"type": kind, "status": "True", "reason": reason}
    ready = {"type": "Ready", "status": "True"}
    usage = shown(METER.measure(replace(resized([ready, condition]), spec=pod.spec)))
    assert (usage["requests.cpu"], usage["limits.cpu"]) == counted


def test_a_status_counts_for_its_own_container_or_sidecar_alone() -> None:
    def container(name: str, cpu: str, **more: str) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}} | more

    document = RESOURCE.to_document(
        new_pod(
            spec={
                "containers": [container("a", "1"), container("b", "1")],
                "initContainers": [
                    container("side", "1", restartPolicy="Always"),
                    container("first", "1"),
                ],
            }
        )
    )

    def status(name: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": "5"}}}

    document["status"] = {
        "containerStatuses": [status("a")],
        "initContainerStatuses": [status("side"), status("first") | {"resources": None}],
    }
    assert shown(METER.measure(RESOURCE.from_document(document)))["requests.cpu"] == "11"
    document["status"] = {"initContainerStatuses": [{"name": "first", **status("first")}]}
    assert shown(METER.measure(RESOURCE.from_document(document)))["requests.cpu"] == "3"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_only_counts_as_an_object(phase: str) -> None:
    pod = asking({"cpu": "1"})
    ended = replace(pod, status=replace(pod.status, phase=phase))
    assert shown(METER.measure(ended)) == {"count/pods": "1"}


def test_a_pod_that_does_not_end_in_time_stops_counting() -> None:
    pod = asking({"cpu": "1"})
    doomed = replace(
        pod.metadata, deletionTimestamp="2030-01-01T00:00:30Z", deletionGracePeriodSeconds=30
    )
    measure = METER.measure(replace(pod, metadata=doomed))
    end = parse_time("2030-01-01T00:01:00Z")
    assert "cpu" in measure.at(end)
    assert dict(measure.at(end + timedelta(seconds=1))) == {"count/pods": measure.usage["pods"]}


@pytest.mark.parametrize(
    ("at", "grace"), [("2030-01-01T00:00:30Z", None), ("9999-12-31T23:59:59Z", 30)]
)
def test_a_deleted_pod_without_an_end_counts_until_it_is_gone(at: str, grace: int | None) -> None:
    pod = asking({"cpu": "1"})
    doomed = replace(pod.metadata, deletionTimestamp=at, deletionGracePeriodSeconds=grace)
    measure = METER.measure(replace(pod, metadata=doomed))
    assert measure.until is None
    assert shown(measure)["cpu"] == "1"


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("pods", True),
        ("count/pods", True),
        ("cpu", True),
        ("limits.ephemeral-storage", True),
        ("requests.example.com/gpu", True),
        ("requests.hugepages-1Gi", True),
        ("hugepages-1Gi", True),
        ("requests.deviceclass.resource.kubernetes.io/gold", True),
        ("example.com/gpu", False),
        ("limits.example.com/gpu", False),
        ("requests.storage", False),
        ("gold.storageclass.storage.k8s.io/requests.storage", False),
        ("count/secrets", False),
        ("services", False),
    ],
)
def test_names_that_pods_are_counted_under(name: str, counted: bool) -> None:
    assert METER.names([name]) == ({name} if counted else frozenset())


def test_every_container_must_speak_of_cpu_and_memory_that_are_bounded() -> None:
    spec = {
        "initContainers": [{"name": "i", "image": "x"}],
        "containers": [
            {"name": "b", "image": "x"},
            {"name": "a", "image": "x", "resources": {"requests": {"cpu": "1"}}},
        ],
    }
    names = ["requests.cpu", "limits.cpu", "pods", "requests.example.com/gpu", "memory"]
    assert METER.missing(new_pod(spec=spec), names) == (
        "must specify limits.cpu for: a,b,i; memory for: a,b,i; requests.cpu for: b,i"
    )
    assert METER.missing(new_pod(spec=spec), ["pods", "requests.ephemeral-storage"]) == ""


def test_a_pod_that_speaks_as_a_whole_speaks_for_its_containers() -> None:
    pod = new_pod(spec={"resources": {"requests": {"cpu": "1"}}})
    assert METER.missing(pod, ["requests.cpu", "requests.memory"]) == ""


def test_a_pod_that_says_all_or_nothing_as_a_whole_is_judged_by_its_containers() -> None:
    assert METER.missing(asking({"cpu": "1"}), ["requests.cpu"]) == ""
    silent = new_pod(spec={"resources": {}})
    assert METER.missing(silent, ["requests.cpu"]) == "must specify requests.cpu for: ctr"


def scopes(**spec: Any) -> set[str]:
    return set(METER.measure(new_pod(spec=spec)).scopes)


def test_scopes_follow_from_the_spec() -> None:
    assert scopes() == {"NotTerminating", "BestEffort"}
    assert scopes(activeDeadlineSeconds=5) == {"Terminating", "BestEffort"}
    assert scopes(activeDeadlineSeconds=0) == {"Terminating", "BestEffort"}
    assert "PriorityClass" in scopes(priorityClassName="high")
    assert set(METER.measure(asking({"cpu": "1"})).scopes) == {"NotTerminating", "NotBestEffort"}


def test_the_quality_of_service_that_a_pod_has_got_counts() -> None:
    pod = new_pod()
    burstable = replace(pod, status=replace(pod.status, qosClass="Burstable"))
    assert set(METER.measure(burstable).scopes) == {"NotTerminating", "NotBestEffort"}


@pytest.mark.parametrize("side", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("where", [{"namespaces": ["other"]}, {"namespaceSelector": {}}])
def test_affinity_to_pods_elsewhere_is_a_scope(side: str, where: dict[str, Any]) -> None:
    term = {"topologyKey": "k", "labelSelector": {}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    wish = {"weight": 1, "podAffinityTerm": term | where}
    assert "CrossNamespacePodAffinity" not in scopes(affinity={side: {required: [term]}})
    assert "CrossNamespacePodAffinity" in scopes(affinity={side: {required: [term | where]}})
    assert "CrossNamespacePodAffinity" in scopes(affinity={side: {preferred: [wish]}})
