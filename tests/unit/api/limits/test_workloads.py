from typing import Any

import pytest

from kedge.api.core_v1.limit_range import RESOURCE
from kedge.api.limits.bounds import NamespaceLimits, bounds_of
from kedge.api.limits.violations import LimitRangeViolation
from kedge.api.limits.workloads import RESOURCES, outcome, pod_from, template_of
from kedge.api.resource import Resource
from kedge.testing.pods import new_pod

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "3"}}}]},
}


def bounds(item: dict[str, Any]) -> NamespaceLimits:
    document = {"metadata": {"name": "limits"}, "spec": {"limits": [item]}}
    return bounds_of([RESOURCE.strategy.default(RESOURCE.from_document(document))])


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_pods_are_made_from_the_template_of_every_workload(resource: Resource[Any]) -> None:
    spec: dict[str, Any] = {"template": TEMPLATE}
    path = "spec.template"
    if resource.kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
        path = "spec.jobTemplate.spec.template"
    obj = resource.strategy.default(
        resource.from_document({"metadata": {"name": "w"}, "spec": spec})
    )
    template = template_of(obj)
    assert template is not None
    assert template.path == path
    made = pod_from(template.spec, "team")
    assert (made.metadata.namespace, made.metadata.labels) == ("team", {"app": "web"})
    assert str(made.spec.containers[0].resources.requests["cpu"]) == "3"


def test_what_makes_no_pods_has_no_template() -> None:
    assert template_of(new_pod()) is None
    kind = next(each for each in RESOURCES if each.kind == "ReplicationController")
    assert template_of(kind.from_document({})) is None


def test_what_a_pod_is_given_may_be_what_makes_it_invalid() -> None:
    pod = new_pod(container={"resources": {"requests": {"cpu": "2"}}})
    found = outcome(bounds({"type": "Container", "max": {"cpu": "1"}}), pod)
    assert found.violations == [
        LimitRangeViolation(
            "limits",
            'spec.containers[0].resources.requests: Invalid value: "2": '
            "must be less than or equal to cpu limit of 1",
        )
    ]


def test_a_container_may_be_given_more_than_its_pod_has() -> None:
    pod = new_pod(spec={"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}})
    found = outcome(bounds({"type": "Container", "default": {"cpu": "2"}}), pod)
    assert [each.message.partition(":")[0] for each in found.violations] == [
        "spec.resources.requests[cpu]",
        "spec.resources.containers[0][cpu].limits",
    ]


def test_what_was_wrong_before_is_not_the_doing_of_a_limit_range() -> None:
    amounts = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    pod = new_pod(container={"resources": amounts})
    found = outcome(bounds({"type": "Container", "default": {"memory": "1Gi"}}), pod)
    assert found.violations == []
    assert [each.resource for each in found.given] == ["memory", "memory"]
