from typing import Any

import pytest
from hypothesis import given as supposing
from hypothesis import strategies as st

from kedge.api.core_v1 import persistent_volume_claim
from kedge.api.core_v1.limit_range import RESOURCE
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.limits.bounds import NamespaceLimits, bounds_of
from kedge.api.limits.violations import (
    LimitRangeViolation,
    _keeps_within,
    _pod_violations,
    claim_violations,
    pod_violations,
    refusal,
)
from kedge.testing.pods import new_pod


def bounds(**ranges: list[dict[str, Any]]) -> NamespaceLimits:
    documents = (
        {"metadata": {"name": name}, "spec": {"limits": items}} for name, items in ranges.items()
    )
    return bounds_of(
        [RESOURCE.strategy.default(RESOURCE.from_document(each)) for each in documents]
    )


def limited(*amounts: str, **meta: Any) -> Pod:
    containers = [
        {"name": f"c{i}", "image": "i", "resources": {"limits": {"cpu": amount}}}
        for i, amount in enumerate(amounts)
    ]
    return new_pod(metadata=meta, spec={"containers": containers})


def test_every_limit_range_has_its_say() -> None:
    found = pod_violations(
        bounds(
            b=[{"type": "Container", "max": {"cpu": "1"}}],
            a=[{"type": "Pod", "max": {"cpu": "1"}}, {"type": "Container", "max": {"cpu": "1"}}],
        ),
        limited("2", "2"),
    )
    container = "maximum cpu usage per Container is 1, but limit is 2"
    assert found == [
        LimitRangeViolation("a", "maximum cpu usage per Pod is 1, but limit is 4"),
        LimitRangeViolation("a", container),
        LimitRangeViolation("b", container),
    ]
    assert refusal(found) == f"[{found[0].message}, {container}]"
    assert refusal(found[1:]) == container


def test_excluded_pods_and_containers_are_not_looked_at() -> None:
    narrow = {"type": "Container", "max": {"cpu": "1"}}
    by_label = bounds(a=[{**narrow, "selector": {"matchLabels": {"tier": "batch"}}}])
    assert pod_violations(by_label, limited("2")) == []
    assert len(pod_violations(by_label, limited("2", labels={"tier": "batch"}))) == 1
    by_container = bounds(a=[{**narrow, "selector": {"containerName": "c1"}}])
    assert pod_violations(by_container, limited("2", "1")) == []
    assert len(pod_violations(by_container, limited("1", "2"))) == 1


def test_a_uid_is_looked_at_when_pods_are_checked() -> None:
    one = bounds(a=[{"type": "Pod", "max": {"cpu": "1"}, "selector": {"uid": "u-1"}}])
    assert pod_violations(one, limited("2", uid="u-2")) == []
    assert len(pod_violations(one, limited("2", uid="u-1"))) == 1


@pytest.mark.parametrize(
    ("limit", "ratio", "message"),
    [
        ("1610m", "16.1", ""),
        ("1611m", "16.1", "is 16100m, but provided ratio is 16.110000"),
        ("1e400", "2", f"is 2, but provided ratio is 1{'0' * 401}.000000"),
    ],
)
def test_ratios_are_exact(limit: str, ratio: str, message: str) -> None:
    item = {"type": "Container", "maxLimitRequestRatio": {"cpu": ratio}}
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": limit}}
    found = pod_violations(bounds(a=[item]), new_pod(container={"resources": resources}))
    expected = f"cpu max limit to request ratio per Container {message}"
    assert [each.message for each in found] == ([expected] if message else [])


def test_a_claim_is_chosen_by_its_selector() -> None:
    claims = persistent_volume_claim.RESOURCE
    item = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}
    fast = bounds(a=[{**item, "selector": {"matchLabels": {"class": "fast"}}}])

    def claim(label: str) -> Any:
        spec = {"resources": {"requests": {"storage": "2Gi"}}}
        meta = {"name": "v", "labels": {"class": label}}
        return claims.from_document({"metadata": meta, "spec": spec})

    assert claim_violations(fast, claim("slow")) == []
    assert claim_violations(fast, claim("fast")) == [
        LimitRangeViolation(
            "a",
            "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi",
        )
    ]


def test_a_violation_names_its_limit_range() -> None:
    (found,) = pod_violations(
        bounds(small=[{"type": "Pod", "max": {"cpu": "1"}}]), limited("1500m", "1500m")
    )
    message = "maximum cpu usage per Pod is 1, but limit is 3"
    assert str(found) == f'{message} (LimitRange "small")'


@pytest.mark.parametrize("kind", ["Container", "Pod"])
@pytest.mark.parametrize(
    ("item", "requests", "limits", "fits"),
    [
        ({"min": "1"}, "1", "", True),
        ({"min": "1"}, "1", "1", True),
        ({"min": "1"}, "999m", "2", False),
        ({"min": "1"}, "1", "999m", False),
        ({"min": "1"}, "", "", False),
        ({"max": "1"}, "", "1", True),
        ({"max": "1"}, "1", "1", True),
        ({"max": "1"}, "1001m", "1", False),
        ({"max": "1"}, "", "1001m", False),
        ({"max": "1"}, "", "", False),
        ({"maxLimitRequestRatio": "2"}, "1", "2", True),
        ({"maxLimitRequestRatio": "2"}, "1", "2001m", False),
        ({"maxLimitRequestRatio": "2"}, "0", "1", False),
        ({"maxLimitRequestRatio": "2"}, "1", "", False),
        ({"min": "1", "max": "3"}, "1", "3", True),
    ],
)
def test_a_pod_on_its_bounds_is_accepted_at_the_first_look(
    kind: str, item: dict[str, str], requests: str, limits: str, fits: bool
) -> None:
    resources = {
        bound: {"cpu": amount}
        for bound, amount in (("requests", requests), ("limits", limits))
        if amount
    }
    range_ = bounds(a=[{"type": kind, **{bound: {"cpu": item[bound]} for bound in item}}])
    pod = new_pod(container={"resources": resources})
    assert _keeps_within(range_, pod) is fits
    assert (pod_violations(range_, pod) == []) is fits


def test_resources_of_the_pod_itself_count_instead_of_those_of_its_containers() -> None:
    range_ = bounds(a=[{"type": "Pod", "max": {"cpu": "2"}}])

    def pod(own: str) -> Pod:
        whole = {"resources": {"limits": {"cpu": own}}}
        containers = [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]
        return new_pod(spec={"containers": containers, **whole})

    assert pod_violations(range_, pod("2")) == []
    (found,) = pod_violations(range_, pod("3"))
    assert found.message == "maximum cpu usage per Pod is 2, but limit is 3"


_amount = st.sampled_from(["0", "1m", "500m", "1", "1001m", "2", "3"])
_amounts = st.dictionaries(st.sampled_from(["cpu", "memory"]), _amount)
_item = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["Pod", "Container"]),
        "min": _amounts,
        "max": _amounts,
        "maxLimitRequestRatio": _amounts,
    }
)
_resources = st.fixed_dictionaries({"requests": _amounts, "limits": _amounts})


@supposing(
    st.lists(st.lists(_item, max_size=3), max_size=3),
    st.lists(_resources, min_size=1, max_size=2),
    st.lists(_resources, max_size=2),
)
def test_the_quick_look_agrees_with_the_thorough_one(
    ranges: list[list[dict[str, Any]]],
    containers: list[dict[str, Any]],
    init: list[dict[str, Any]],
) -> None:
    def named(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"name": f"c{i}", "resources": each} for i, each in enumerate(resources)]

    found = bounds(**{f"r{i}": items for i, items in enumerate(ranges)})
    spec = {"containers": named(containers), "initContainers": named(init)}
    pod = new_pod(spec=spec)
    assert _keeps_within(found, pod) is not any(_pod_violations(found, pod))
