from kedge.api.core_v1 import config_map
from kedge.api.core_v1.namespace import NamespaceCondition
from kedge.api.core_v1.pod import pod
from kedge.client.view import Outline, OutlineMeta
from kedge.controllers.namespace_content import (
    CONTENT,
    DELETION,
    DISCOVERY,
    FINALIZERS,
    ContentDeletion,
    RemainingObjects,
    conditions,
    merged,
    unexpected,
)


def held(*finalizers: str) -> Outline:
    return Outline(OutlineMeta(name="x", finalizers=finalizers))


def by_type(found: list[NamespaceCondition]) -> dict[str, NamespaceCondition]:
    return {condition.type: condition for condition in found}


def test_a_namespace_without_trouble_has_five_conditions_that_say_so() -> None:
    found = conditions(ContentDeletion())
    assert [condition.status for condition in found] == ["False"] * 5
    assert by_type(found)[CONTENT].reason == "ContentRemoved"


def test_leftovers_and_their_finalizers_are_counted() -> None:
    leftovers = [
        RemainingObjects(pod.RESOURCE, [held("b/y"), held("a/x", "b/y")], "7"),
        RemainingObjects(config_map.RESOURCE, [held("a/x")], "7"),
    ]
    found = by_type(conditions(ContentDeletion(leftovers)))
    assert found[CONTENT].message == (
        "Some resources are remaining: configmaps. has 1 resource instances, "
        "pods. has 2 resource instances"
    )
    assert found[FINALIZERS].message == (
        "Some content in the namespace has finalizers remaining: "
        "a/x in 2 resource instances, b/y in 2 resource instances"
    )
    assert found[FINALIZERS].reason == "SomeFinalizersRemain"
    assert found[DELETION].status == "False"


def test_failures_are_told() -> None:
    found = by_type(conditions(ContentDeletion(failures=["b", "a"], undiscovered="no answer")))
    assert found[DELETION].message == "Failed to delete all resource types, 2 remaining: a, b"
    assert (found[DISCOVERY].status, found[DISCOVERY].message) == ("True", "no answer")


def test_only_what_nothing_holds_is_unexpected() -> None:
    going = Outline(OutlineMeta(name="x", deletion_timestamp="2030-01-01T00:00:00Z"))
    assert unexpected("ns", RemainingObjects(pod.RESOURCE, [going, held("a/x")], "7")) == ""
    assert unexpected("ns", RemainingObjects(pod.RESOURCE, [going, Outline()], "7")) == (
        "unexpected items still remain in namespace: ns for gvr: /v1, Resource=pods"
    )


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    old = [
        NamespaceCondition(type="Own", status="True", lastTransitionTime="t0"),
        NamespaceCondition(type=CONTENT, status="True", message="3", lastTransitionTime="t0"),
        NamespaceCondition(type=DELETION, status="True", lastTransitionTime="t0"),
    ]
    new = [
        NamespaceCondition(type=CONTENT, status="True", message="2"),
        NamespaceCondition(type=DELETION, status="False"),
        NamespaceCondition(type=DISCOVERY, status="False"),
    ]
    told = [(c.type, c.status, c.message, c.lastTransitionTime) for c in merged(old, new, "t1")]
    assert told == [
        ("Own", "True", "", "t0"),
        (CONTENT, "True", "2", "t0"),
        (DELETION, "False", "", "t1"),
        (DISCOVERY, "False", "", "t1"),
    ]
