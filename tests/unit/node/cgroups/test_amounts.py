"""What control groups are told, for pods of all classes."""

import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.node.cgroups import amounts

GIB = 2**30


def pod(*containers: dict[str, object], **spec: object) -> Pod:
    named = [{"name": f"c{i}", "image": "i", **c} for i, c in enumerate(containers)]
    return RESOURCE.from_document(
        {"metadata": {"name": "p"}, "spec": {"containers": named, **spec}}
    )


def asks(limits: dict[str, str], requests: dict[str, str] | None = None) -> dict[str, object]:
    return {"resources": {"limits": limits, "requests": limits if requests is None else requests}}


@pytest.mark.parametrize(
    ("milli", "expected"),
    [(0, 2), (1, 2), (10, 10), (100, 102), (250, 256), (1000, 1024), (64000, 65536)],
)
def test_shares_are_1024_for_each_processor(milli: int, expected: int) -> None:
    assert amounts.shares(milli) == expected


def test_shares_stay_within_what_the_kernel_takes() -> None:
    assert amounts.shares(10**9) == 262144


@pytest.mark.parametrize(
    ("milli", "expected"), [(1, 1000), (10, 1000), (100, 10000), (1500, 150000)]
)
def test_quota_is_a_part_of_the_period_and_never_below_a_millisecond(
    milli: int, expected: int
) -> None:
    assert amounts.quota(milli) == expected


def test_container_gets_what_it_asks_for() -> None:
    subject = pod(asks({"cpu": "500m", "memory": "64Mi"}, {"cpu": "250m", "memory": "32Mi"}))
    told = amounts.of_container(subject, subject.spec.containers[0], 8 * GIB)
    assert (told.cpu_shares, told.cpu_quota, told.memory_limit) == (256, 50000, 64 * 2**20)


def test_container_that_asks_for_nothing_has_the_least_weight_and_no_limits() -> None:
    subject = pod({})
    told = amounts.of_container(subject, subject.spec.containers[0], 8 * GIB)
    assert (told.cpu_shares, told.cpu_quota, told.memory_limit) == (2, -1, -1)
    assert told.oom_score_adj == 1000


def test_pod_is_limited_only_if_every_container_is() -> None:
    limited = asks({"cpu": "1", "memory": "1Gi"})
    both = amounts.of_pod(pod(limited, limited), 100)
    assert (both.cpu_quota, both.memory_limit, both.cpu_shares) == (200000, 2 * GIB, 2048)
    one = amounts.of_pod(pod(limited, asks({"cpu": "1"})), 100)
    assert (one.cpu_quota, one.memory_limit, one.pids_limit) == (200000, -1, 100)


def test_pods_own_limits_stand_in_for_those_of_its_containers() -> None:
    subject = pod({}, resources={"limits": {"cpu": "2", "memory": "1Gi"}})
    told = amounts.of_pod(subject, -1)
    assert (told.cpu_quota, told.memory_limit) == (200000, GIB)


def test_overhead_comes_on_top_of_a_pods_limits() -> None:
    subject = pod(asks({"cpu": "1", "memory": "1Gi"}), overhead={"cpu": "500m", "memory": "1Gi"})
    told = amounts.of_pod(subject, -1)
    assert (told.cpu_quota, told.memory_limit, told.cpu_shares) == (150000, 2 * GIB, 1536)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [("4Gi", 500), ("1Mi", 999), ("8Gi", 3), ("9Gi", 3)],
)
def test_kernel_takes_burstable_pods_by_the_part_of_memory_they_asked_for(
    request_: str, expected: int
) -> None:
    subject = pod(asks({}, {"memory": request_}))
    assert amounts.oom_score_adj(subject, subject.spec.containers[0], 8 * GIB) == expected


def test_guaranteed_and_critical_pods_go_last() -> None:
    guaranteed = pod(asks({"cpu": "1", "memory": "1Gi"}))
    assert amounts.oom_score_adj(guaranteed, guaranteed.spec.containers[0], 8 * GIB) == -997
    critical = pod({}, priority=2000001000)
    assert amounts.oom_score_adj(critical, critical.spec.containers[0], 8 * GIB) == -997


def test_sidecar_does_not_go_before_those_it_serves() -> None:
    subject = pod(
        asks({}, {"memory": "4Gi"}),
        initContainers=[{"name": "s", "image": "i", "restartPolicy": "Always"}],
    )
    sidecar = subject.spec.initContainers[0]
    assert amounts.oom_score_adj(subject, sidecar, 8 * GIB) == 500


def test_huge_pages_are_named_as_the_kernel_names_them() -> None:
    subject = pod(asks({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi", "cpu": "1"}))
    told = amounts.of_container(subject, subject.spec.containers[0], GIB)
    assert told.hugepages == {"2MB": 4 * 2**20, "1GB": GIB}
