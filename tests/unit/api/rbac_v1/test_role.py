from kedge.api.rbac_v1.role import RESOURCE, PolicyRule, Role


def errors(rule: PolicyRule) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(Role(rules=[rule]))]


def test_a_rule_says_what_may_be_done_to_what() -> None:
    assert errors(PolicyRule(verbs=["get"], apiGroups=[""], resources=["pods"])) == []
    assert errors(PolicyRule()) == [
        "rules[0].verbs: Required value: verbs must contain at least one value",
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        "rules[0].resources: Required value: resource rules must supply at least one resource",
    ]


def test_paths_are_for_cluster_roles() -> None:
    (error,) = errors(PolicyRule(verbs=["get"], nonResourceURLs=["/metrics"]))
    assert error == (
        'rules[0].nonResourceURLs: Invalid value: ["/metrics"]: '
        "namespaced rules cannot apply to non-resource URLs"
    )


def test_names_may_hold_colons_but_no_slash() -> None:
    assert RESOURCE.strategy.check_name("system:node-reader") == []
    assert RESOURCE.strategy.check_name("a/b") == ["may not contain '/'"]
