"""What the webhook decides about pods, claims, workloads and LimitRanges."""

from typing import Any

import pytest
from tests.unit.admission_webhook import reviews

from kedge.admission_webhook.decisions import mutate, validate
from kedge.admission_webhook.review import ALLOWED

BATCH = {"matchLabels": {"tier": "batch"}}
LIMITS = reviews.limits(
    {
        "type": "Container",
        "selector": BATCH,
        "max": {"cpu": "2", "memory": "1Gi"},
        "default": {"cpu": "500m"},
    },
    {"type": "Container", "selector": {"containerName": "proxy"}, "min": {"memory": "64Mi"}},
    {"type": "Pod", "selector": BATCH, "max": {"cpu": "3"}},
)


def with_limits(**amounts: str) -> dict[str, Any]:
    return {"resources": {"requests": amounts, "limits": amounts}}


def test_every_violation_is_reported_in_order() -> None:
    greedy = reviews.pod(
        reviews.container("main", **with_limits(cpu="4", memory="2Gi")),
        reviews.container("proxy", **with_limits(cpu="100m", memory="32Mi")),
        labels={"tier": "batch"},
    )
    refusal = validate(reviews.of_pod(greedy), LIMITS).refusal
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (403, "Forbidden")
    assert refusal.message == (
        'pods "web" is forbidden: [maximum cpu usage per Container is 2, but limit is 4, maximum'
        " memory usage per Container is 1Gi, but limit is 2Gi, minimum memory usage per Container"
        " is 64Mi, but request is 32Mi, maximum cpu usage per Pod is 3, but limit is 4100m]"
    )


def test_others_than_the_selected_are_left_alone() -> None:
    greedy = reviews.pod(reviews.container(**with_limits(cpu="4", memory="2Gi")))
    assert validate(reviews.of_pod(greedy), LIMITS) == ALLOWED
    assert mutate(reviews.of_pod(greedy), LIMITS).changed == greedy


def test_containers_get_the_defaults_of_their_selector() -> None:
    document = reviews.pod(
        reviews.container("main", resources={"requests": {"cpu": "100m"}}),
        labels={"tier": "batch"},
        initContainers=[reviews.container("init")],
    )
    changed = mutate(reviews.of_pod(document), LIMITS).changed
    assert changed is not None
    assert changed["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }
    assert changed["spec"]["initContainers"][0]["resources"]["limits"]["cpu"] == "500m"
    note = changed["metadata"]["annotations"]["kubernetes.io/limit-ranger"]
    assert note.startswith("LimitRanger plugin set: memory request for container main; ")


def test_defaults_come_after_those_of_the_api_server_s_own_plugin() -> None:
    document = reviews.pod(reviews.container(), labels={"tier": "batch"})
    before = "LimitRanger plugin set: memory request for container main"
    document["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": before}
    changed = mutate(reviews.of_pod(document), LIMITS).changed
    assert changed is not None
    note = changed["metadata"]["annotations"]["kubernetes.io/limit-ranger"]
    assert note.startswith(f"{before}; cpu, memory request for container main")


def test_a_second_call_changes_nothing() -> None:
    env = [reviews.variable("resources.limits.cpu")]
    document = reviews.pod(reviews.container(env=env), labels={"tier": "batch"})
    once = mutate(reviews.of_pod(document), LIMITS).changed
    assert once is not None
    assert mutate(reviews.of_pod(dict(once)), LIMITS).changed == once


@pytest.mark.parametrize(
    ("operation", "sub", "counts"),
    [
        ("CREATE", "", True),
        ("UPDATE", "resize", True),
        ("UPDATE", "", False),
        ("DELETE", "", False),
        ("UPDATE", "status", False),
        ("CREATE", "binding", False),
    ],
)
def test_pods_are_checked_when_they_are_made_or_resized(
    operation: str, sub: str, counts: bool
) -> None:
    greedy = reviews.pod(
        reviews.container(**with_limits(cpu="4", memory="1Gi")), labels={"tier": "batch"}
    )
    verdict = validate(reviews.of_pod(greedy, operation, sub), LIMITS)
    assert (verdict.refusal is not None) == counts


def test_the_spec_of_an_existing_pod_is_not_translated() -> None:
    document = reviews.pod(reviews.container(env=[reviews.variable("resources.limits.cpu")]))
    assert mutate(reviews.of_pod(document, "UPDATE"), None).changed == document


def test_claims_are_checked() -> None:
    bounds = reviews.limits(
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}, "selector": {"name": "data"}}
    )
    claim: dict[str, Any] = {
        "metadata": {"name": "data", "namespace": "shop"},
        "spec": {"resources": {"requests": {"storage": "2Gi"}}},
    }
    refusal = validate(reviews.of("", "persistentvolumeclaims", claim), bounds).refusal
    assert refusal is not None
    assert "but request is 2Gi" in refusal.message
    claim["metadata"]["name"] = "other"
    assert validate(reviews.of("", "persistentvolumeclaims", claim), bounds) == ALLOWED


def test_workloads_are_warned_about_and_let_through() -> None:
    template = {
        "metadata": {"labels": {"tier": "batch"}},
        "spec": {"containers": [reviews.container(**with_limits(cpu="4", memory="1Gi"))]},
    }
    deployment = {"metadata": {"name": "web"}, "spec": {"template": template}}
    verdict = validate(reviews.of("apps", "deployments", deployment), LIMITS)
    assert verdict.refusal is None
    assert list(verdict.warnings) == [
        'spec.template: pods will be refused by LimitRange "limits": maximum cpu usage per'
        " Container is 2, but limit is 4",
        'spec.template: pods will be refused by LimitRange "limits": maximum cpu usage per Pod is'
        " 3, but limit is 4",
    ]


def test_all_errors_of_a_limit_range_are_reported() -> None:
    document = {
        "metadata": {"name": "bad", "namespace": "shop"},
        "spec": {
            "limits": [
                {"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
                {"type": "Pod", "selector": {}},
            ]
        },
    }
    refusal = validate(reviews.of("kedge.dev", "limitranges", document), None).refusal
    assert refusal is not None
    assert refusal.code == 422
    assert refusal.message == (
        'LimitRange.kedge.dev "bad" is invalid: [spec.limits[0].min[cpu]: Invalid value: "2": min'
        " value 2 is greater than max value 1, spec.limits[1].selector: Required value: must say at"
        " least one of matchLabels, matchExpressions, fieldSelector, name, uid, containerName]"
    )


def test_an_object_of_another_kind_is_let_through() -> None:
    secret = reviews.of("", "secrets", {"metadata": {"name": "a"}})
    assert mutate(secret, LIMITS) == validate(secret, LIMITS) == ALLOWED


def test_a_review_without_an_object_is_let_through() -> None:
    request = reviews.of_pod({})
    assert validate(type(request)("u", request.resource, "CREATE"), LIMITS) == ALLOWED
