import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.rbac_v1.role import PolicyRule
from kedge.apiserver.authorization.rights import (
    Rights,
    TooManyPermissions,
    broken_down,
    keys_of,
    uncovered,
)

GROUPS = ("", "apps", "*")
RESOURCES = ("pods", "pods/log", "scale", "jobs/scale", "*", "*/scale", "*/log")
VERBS = ("get", "list", "*")
NAMES = ("a", "b")
PATHS = ("/a", "/a/b", "/a/*", "*", "/ab*")


def some(values: Iterable[str], least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(tuple(values)), min_size=least, max_size=3)


resource_rules = st.builds(
    PolicyRule,
    apiGroups=some(GROUPS),
    resources=some(RESOURCES),
    verbs=some(VERBS),
    resourceNames=some(NAMES, 0),
)
path_rules = st.builds(PolicyRule, nonResourceURLs=some(PATHS), verbs=some(VERBS))
rules = st.lists(resource_rules | path_rules, max_size=4)


def matches(rule: PolicyRule, group: str, resource: str, verb: str, name: str) -> bool:
    """What a rule means, word by word."""
    _, _, subresource = resource.partition("/")
    return (
        bool({group, "*"} & set(rule.apiGroups))
        and bool({verb, "*"} & set(rule.verbs))
        and (
            bool({resource, "*"} & set(rule.resources))
            or bool(subresource and f"*/{subresource}" in rule.resources)
        )
        and (not rule.resourceNames or name in rule.resourceNames)
    )


@given(
    rules,
    st.sampled_from(("", "apps", "batch")),
    st.sampled_from(("pods", "pods/log", "jobs/scale", "scale")),
    st.sampled_from(("get", "list", "delete")),
    st.sampled_from(("", "a", "b", "c")),
)
def test_compiled_rules_mean_what_they_say(
    given: list[PolicyRule], group: str, resource: str, verb: str, name: str
) -> None:
    expected = any(matches(rule, group, resource, verb, name) for rule in given)
    assert Rights(given).allow(keys_of(group, resource), verb, name) == expected


@given(rules, st.sampled_from(("/a", "/a/", "/a/b", "/abc", "/")), st.sampled_from(("get", "put")))
def test_paths_match_exactly_or_by_what_stands_before_the_star(
    given: list[PolicyRule], path: str, verb: str
) -> None:
    expected = any(
        bool({verb, "*"} & set(rule.verbs))
        and any(
            path == each or (each.endswith("*") and path.startswith(each[:-1]))
            for each in rule.nonResourceURLs
        )
        for rule in given
    )
    assert Rights(given).allow_path(path, verb) == expected


@given(rules)
def test_rights_cover_the_rules_they_are_made_of(given: list[PolicyRule]) -> None:
    assert uncovered([Rights(given)], given) == []


@given(rules, rules)
def test_what_is_uncovered_is_just_what_is_missing(
    held: list[PolicyRule], wanted: list[PolicyRule]
) -> None:
    missing = uncovered([Rights(held)], wanted)
    assert uncovered([Rights(held), Rights(missing)], wanted) == []
    parts = [part for rule in wanted for part in broken_down(rule)]
    assert all(part in parts for part in missing)


def test_a_right_to_every_object_is_more_than_one_to_each_that_there_is() -> None:
    named = PolicyRule(apiGroups=[""], resources=["pods"], resourceNames=["a"], verbs=["get"])
    every = PolicyRule(apiGroups=[""], resources=["pods"], verbs=["get"])
    assert uncovered([Rights([named])], [every]) == [
        PolicyRule(apiGroups=("",), resources=("pods",), verbs=("get",))
    ]
    assert uncovered([Rights([every])], [named]) == []


@given(
    rules,
    st.sampled_from(("", "apps", "batch")),
    st.sampled_from(("pods", "pods/log", "jobs/scale", "scale")),
    st.sampled_from(("get", "delete")),
    st.sampled_from(("", "a", "c")),
)
def test_rules_that_are_not_taken_apart_mean_the_same(
    given: list[PolicyRule], group: str, resource: str, verb: str, name: str
) -> None:
    keys = keys_of(group, resource)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kedge.apiserver.authorization.rights.MOST_ENTRIES", 0)
        wide = Rights(given)
    assert wide.allow(keys, verb, name) == Rights(given).allow(keys, verb, name)
    assert wide.allow_all(keys, verb) == Rights(given).allow_all(keys, verb)


def test_a_rule_costs_what_it_is_long_not_what_it_multiplies_to() -> None:
    many = [f"n{i}" for i in range(2_000)]
    wide = PolicyRule(apiGroups=many, resources=many, verbs=many)
    named = [
        PolicyRule(apiGroups=[""], resources=["pods"], verbs=["get"], resourceNames=[name])
        for name in many * 8
    ]
    began = time.process_time()
    rights = Rights([wide, *named])
    assert time.process_time() - began < 1
    assert rights.allow(keys_of("n5", "n7"), "n1999", "")
    assert rights.allow(keys_of("", "pods"), "get", "n1999")
    assert not rights.allow(keys_of("n5", "n7"), "other", "")


def test_more_permissions_than_can_be_compared_are_refused() -> None:
    many = [f"n{i}" for i in range(2_000)]
    with pytest.raises(TooManyPermissions, match="more than 10000 single permissions"):
        uncovered([], [PolicyRule(apiGroups=many, resources=many, verbs=many)])
    same = PolicyRule(apiGroups=[""] * 2_000, resources=["pods"] * 2_000, verbs=["get"] * 2_000)
    assert uncovered([], [same]) == [
        PolicyRule(apiGroups=("",), resources=("pods",), verbs=("get",))
    ]
