import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api.rbac_v1.role import PolicyRule
from kedge.apiserver.authorization import rights
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


@pytest.mark.parametrize("most", [20_000, 0])
@pytest.mark.parametrize(
    ("group", "resource", "verb", "allowed"),
    [
        ("apps", "deployments", "get", {"deployments"}),
        ("apps", "deployments/scale", "get", {"deployments/scale"}),
        ("apps", "*/scale", "get", {"deployments/scale"}),
        ("apps", "*/status", "get", set()),
        ("apps", "*", "get", {"deployments", "deployments/scale"}),
        ("*", "deployments", "get", {"deployments"}),
        ("*", "deployments/scale", "*", {"deployments/scale"}),
        ("batch", "*", "get", set()),
        ("apps", "*", "list", set()),
    ],
)
def test_stars_stand_for_groups_resources_and_verbs(
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    group: str,
    resource: str,
    verb: str,
    allowed: set[str],
) -> None:
    monkeypatch.setattr(rights, "MOST_ENTRIES", most)
    rule = PolicyRule(apiGroups=[group], resources=[resource], verbs=[verb])
    resources = ("deployments", "deployments/scale")
    held = Rights([rule])
    found = {each for each in resources if held.allow(keys_of("apps", each), "get", "web")}
    assert found == allowed
    assert {each for each in resources if held.allow_all(keys_of("apps", each), "get")} == allowed


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


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("/logs", {"/logs"}),
        ("/logs/*", {"/logs/", "/logs/a"}),
        ("/logs*", {"/logs", "/logs/", "/logs/a", "/logs!"}),
        ("/logs!*", {"/logs!"}),
        ("*", {"/logs", "/logs/", "/logs/a", "/logs!", "/"}),
    ],
)
def test_a_star_at_the_end_of_a_url_allows_every_path_that_begins_alike(
    url: str, allowed: set[str]
) -> None:
    held = Rights([PolicyRule(nonResourceURLs=[url], verbs=["get"])])
    paths = ("/", "/logs", "/logs/", "/logs/a", "/logs!")
    assert {path for path in paths if held.allow_path(path, "get")} == allowed
    assert not any(held.allow_path(path, "put") for path in paths)


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
    held = Rights([wide, *named])
    assert time.process_time() - began < 1
    assert held.allow(keys_of("n5", "n7"), "n1999", "")
    assert held.allow(keys_of("", "pods"), "get", "n1999")
    assert not held.allow(keys_of("n5", "n7"), "other", "")


@pytest.mark.parametrize(
    ("rule", "entries"),
    [
        (PolicyRule(apiGroups=["", "apps"], resources=["pods"], verbs=["get", "list"]), 4),
        (PolicyRule(apiGroups=[""], resources=["pods"], verbs=["get"], resourceNames=["a"]), 1),
        (
            PolicyRule(
                apiGroups=[""], resources=["a", "b"], verbs=["get"], resourceNames=["c", "d", "e"]
            ),
            6,
        ),
        (PolicyRule(apiGroups=[""], resources=["pods"], verbs=[]), 1),
    ],
)
def test_all_rules_of_a_role_together_are_taken_apart_up_to_a_number(
    monkeypatch: pytest.MonkeyPatch, rule: PolicyRule, entries: int
) -> None:
    def taken_apart(most: int, rules: Iterable[PolicyRule]) -> int:
        monkeypatch.setattr(rights, "MOST_ENTRIES", most)
        held = Rights(rules)
        return len(held.rules) - len(held._wide)

    others = [replace(rule, resources=[f"{name}{i}" for name in rule.resources]) for i in range(3)]
    assert taken_apart(entries - 1, [rule]) == 0
    assert taken_apart(entries, [rule]) == 1
    assert taken_apart(3 * entries, [rule, *others]) == 3


@pytest.mark.parametrize(
    ("rule", "permissions"),
    [
        (PolicyRule(apiGroups=["", "apps"], resources=["pods"], verbs=["get", "list"]), 4),
        (
            PolicyRule(
                apiGroups=[""], resources=["a", "b"], verbs=["get"], resourceNames=["c", "d", "e"]
            ),
            6,
        ),
        (PolicyRule(nonResourceURLs=["/a", "/b", "/c"], verbs=["get", "put"]), 6),
    ],
)
def test_permissions_are_counted_before_they_are_compared(
    monkeypatch: pytest.MonkeyPatch, rule: PolicyRule, permissions: int
) -> None:
    monkeypatch.setattr(rights, "MOST_COMPARED", 2 * permissions)
    assert len(uncovered([], [rule, rule])) == 2 * permissions
    monkeypatch.setattr(rights, "MOST_COMPARED", 2 * permissions - 1)
    with pytest.raises(TooManyPermissions):
        uncovered([], [rule, rule])


def test_more_permissions_than_can_be_compared_are_refused() -> None:
    many = [f"n{i}" for i in range(2_000)]
    with pytest.raises(TooManyPermissions, match="more than 10000 single permissions"):
        uncovered([], [PolicyRule(apiGroups=many, resources=many, verbs=many)])
    same = PolicyRule(apiGroups=[""] * 2_000, resources=["pods"] * 2_000, verbs=["get"] * 2_000)
    assert uncovered([], [same]) == [
        PolicyRule(apiGroups=("",), resources=("pods",), verbs=("get",))
    ]
