from typing import Any

from kedge.api.core_v1.limit_range import RESOURCE
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.limits.bounds import NamespaceLimits, bounds_of
from kedge.api.limits.defaulting import ANNOTATION, DefaultedAmount, defaulted
from kedge.machinery.quantity import Quantity
from kedge.testing.pods import new_pod

GENERAL = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}


def bounds(**ranges: list[dict[str, Any]]) -> NamespaceLimits:
    documents = (
        {"metadata": {"name": name}, "spec": {"limits": items}} for name, items in ranges.items()
    )
    return bounds_of(
        [RESOURCE.strategy.default(RESOURCE.from_document(each)) for each in documents]
    )


def only(item: dict[str, Any], **selector: Any) -> dict[str, Any]:
    return {**item, "selector": selector}


def pod(labels: dict[str, str] | None = None, **containers: dict[str, Any]) -> Pod:
    spec = {
        "containers": [
            {"name": name, "image": "i", "resources": resources}
            for name, resources in containers.items()
        ]
    }
    return new_pod(metadata={"labels": labels or {}, "uid": "u-1"}, spec=spec)


def limits(found: Pod) -> dict[str, dict[str, str]]:
    return {
        each.name: {name: str(amount) for name, amount in each.resources.limits.items()}
        for each in found.spec.containers
    }


def test_it_is_told_what_came_from_where() -> None:
    two = bounds(
        a=[{"type": "Container", "defaultRequest": {"cpu": "100m"}}],
        b=[{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}],
    )
    changed, given = defaulted(two, pod(one={}))
    assert given == [
        DefaultedAmount("one", False, "request", "cpu", Quantity.parse("100m"), "a"),
        DefaultedAmount("one", False, "request", "memory", Quantity.parse("1Gi"), "b"),
        DefaultedAmount("one", False, "limit", "cpu", Quantity.parse("1"), "b"),
        DefaultedAmount("one", False, "limit", "memory", Quantity.parse("1Gi"), "b"),
    ]
    assert changed.metadata.annotations[ANNOTATION] == (
        "LimitRanger plugin set: cpu, memory request for container one; "
        "cpu, memory limit for container one"
    )


def test_a_pod_that_says_everything_is_left_alone() -> None:
    given = pod(one={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})
    assert defaulted(bounds(a=[GENERAL]), given) == (given, [])
    assert defaulted(bounds(a=[GENERAL]), given)[0] is given


def test_excluded_pods_get_nothing() -> None:
    batch = bounds(a=[only(GENERAL, matchLabels={"tier": "batch"})])
    assert limits(defaulted(batch, pod({"tier": "batch"}, one={}))[0]) == {"one": {"cpu": "2"}}
    assert defaulted(batch, pod({"tier": "web"}, one={}))[1] == []


def test_excluded_containers_get_nothing() -> None:
    main = bounds(a=[only(GENERAL, containerName="main")])
    changed, _ = defaulted(main, pod(main={}, side={}))
    assert limits(changed) == {"main": {"cpu": "2"}, "side": {}}
    assert "side" not in changed.metadata.annotations[ANNOTATION]


def test_the_first_that_speaks_of_a_resource_counts() -> None:
    special = only({"type": "Container", "default": {"cpu": "5"}}, containerName="main")
    both = pod(main={}, side={})
    first = defaulted(bounds(a=[special, GENERAL]), both)[0]
    assert limits(first) == {"main": {"cpu": "5"}, "side": {"cpu": "2"}}
    second = defaulted(bounds(a=[GENERAL, special]), both)[0]
    assert limits(second) == {"main": {"cpu": "2"}, "side": {"cpu": "2"}}
    by_name = defaulted(bounds(z=[special], a=[GENERAL]), both)[0]
    assert limits(by_name) == {"main": {"cpu": "2"}, "side": {"cpu": "2"}}


def test_an_item_for_a_uid_gives_nothing() -> None:
    assert defaulted(bounds(a=[only(GENERAL, uid="u-1")]), pod(one={}))[1] == []
