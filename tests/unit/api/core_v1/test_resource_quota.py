from kedge.api.core_v1.resource_quota import (
    RESOURCE,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopedResourceSelectorRequirement,
    ScopeSelector,
)
from kedge.machinery.quantity import Quantity


def amounts(*pairs: tuple[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in pairs}


def errors(spec: ResourceQuotaSpec) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(ResourceQuota(spec=spec))]


def test_anything_that_can_be_counted_may_be_bounded() -> None:
    hard = amounts(
        ("pods", "5"),
        ("limits.memory", "1Gi"),
        ("requests.example.com/gpu", "2"),
        ("count/jobs.batch", "3"),
        ("requests.hugepages-2Mi", "4Mi"),
        ("fast.storageclass.storage.k8s.io/requests.storage", "1Gi"),
    )
    assert errors(ResourceQuotaSpec(hard=hard)) == []


def test_amounts_that_make_no_sense_are_refused() -> None:
    assert errors(ResourceQuotaSpec(hard=amounts(("pods", "1500m"), ("cpu", "-1")))) == [
        'spec.hard[pods]: Invalid value: "1500m": must be an integer',
        'spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ]
    assert errors(ResourceQuotaSpec(hard=amounts(("storage", "1")))) == [
        'spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota'
    ]


def test_scopes_must_fit_each_other_and_what_is_counted() -> None:
    spec = ResourceQuotaSpec(scopes=["BestEffort", "NotBestEffort"], hard=amounts(("cpu", "1")))
    assert [text.rpartition(": ")[2] for text in errors(spec)] == [
        "unsupported scope applied to resource",
        "conflicting scopes",
    ]


def test_priority_scopes_take_values_and_lifetime_scopes_take_none() -> None:
    def selecting(scope: str, operator: str, *values: str) -> list[str]:
        requirement = ScopedResourceSelectorRequirement(
            scopeName=scope, operator=operator, values=values
        )
        return errors(
            ResourceQuotaSpec(scopeSelector=ScopeSelector(matchExpressions=[requirement]))
        )

    at = "spec.scopeSelector.matchExpressions"
    assert selecting("PriorityClass", "In", "high") == []
    assert selecting("PriorityClass", "In") == [
        f"{at}.values: Required value: "
        "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
    ]
    assert selecting("Terminating", "NotIn", "x")[0].startswith(
        f"{at}.operator: Invalid value: \"NotIn\": must be 'Exists' when scope is any of"
    )


def test_scopes_stay_as_they_were_in_any_order() -> None:
    one = ResourceQuota(spec=ResourceQuotaSpec(scopes=["Terminating", "NotBestEffort"]))
    turned = ResourceQuota(spec=ResourceQuotaSpec(scopes=["NotBestEffort", "Terminating"]))
    assert list(RESOURCE.strategy.validate_update(turned, one)) == []
    (error,) = RESOURCE.strategy.validate_update(ResourceQuota(), one)
    assert error.body.endswith("field is immutable")


def test_the_columns_show_usage_with_limits_apart() -> None:
    status = ResourceQuotaStatus(
        hard=amounts(("requests.cpu", "1"), ("pods", "5"), ("limits.cpu", "2")),
        used=amounts(("requests.cpu", "100m"), ("limits.cpu", "200m")),
    )
    row = {c.name: c.cell(ResourceQuota(status=status)) for c in RESOURCE.presentation.columns}
    assert row["Request"] == "pods: 0/5, requests.cpu: 100m/1"
    assert row["Limit"] == "limits.cpu: 200m/2"
