from kedge.api.model import LabelSelector
from kedge.api.rbac_v1.cluster_role import RESOURCE, AggregationRule, ClusterRole
from kedge.api.rbac_v1.role import PolicyRule


def errors(obj: ClusterRole) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_a_rule_is_about_paths_or_about_resources() -> None:
    paths = PolicyRule(verbs=["get"], nonResourceURLs=["/healthz*"])
    assert errors(ClusterRole(rules=[paths])) == []
    both = PolicyRule(verbs=["get"], nonResourceURLs=["/healthz"], resources=["pods"])
    assert errors(ClusterRole(rules=[both])) == [
        'rules[0].nonResourceURLs: Invalid value: ["/healthz"]: '
        "rules cannot apply to both regular resources and non-resource URLs"
    ]


def test_a_sum_of_roles_needs_selectors_that_work() -> None:
    assert errors(ClusterRole(aggregationRule=AggregationRule())) == [
        "aggregationRule.clusterRoleSelectors: Required value: "
        "at least one clusterRoleSelector required if aggregationRule is non-nil"
    ]
    broken = AggregationRule(clusterRoleSelectors=[LabelSelector(matchLabels={"a": "b c"})])
    error, whole = errors(ClusterRole(aggregationRule=broken))
    assert error.startswith("aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value")
    assert whole == (
        "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector."
    )
