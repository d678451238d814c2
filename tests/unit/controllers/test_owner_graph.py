from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1 import config_map, node
from kedge.api.core_v1.pod import pod
from kedge.api.model import OwnerReference
from kedge.api.resource import Resource
from kedge.client.view import Outline, OutlineMeta
from kedge.controllers import owner_graph
from kedge.controllers.owner_graph import (
    FOREGROUND,
    LEAVE,
    ORPHAN,
    Action,
    DeleteObject,
    FindOwners,
    OrphanDependents,
    OwnerGraph,
    OwnerLocation,
    RemoveForegroundFinalizer,
    RemoveReferences,
    decide,
    misplaced,
)

CONFIG_MAPS, PODS, NODES = config_map.RESOURCE, pod.RESOURCE, node.RESOURCE
NOW = "2030-01-01T00:00:00Z"


def thing(
    name: str,
    *owners: str,
    namespace: str = "ns",
    finalizers: tuple[str, ...] = (),
    deleting: bool = False,
    blocks: bool = False,
    version: str = "1",
    kind: str = "ConfigMap",
) -> Outline:
    """An object whose uid is its name, owned by others whose uids are theirs."""
    references = tuple(
        OwnerReference(apiVersion="v1", kind=kind, name=owner, uid=owner, blockOwnerDeletion=blocks)
        for owner in owners
    )
    return Outline(
        OutlineMeta(
            name=name,
            namespace=namespace,
            uid=name,
            resource_version=version,
            deletion_timestamp=NOW if deleting else "",
            finalizers=finalizers,
            owner_references=references,
        )
    )


def decision(graph: OwnerGraph, uid: str) -> Action:
    found = graph.get(uid)
    assert found is not None
    return decide(graph, found)


def graph_of(*objects: Outline, resource: Resource[Any] = CONFIG_MAPS) -> OwnerGraph:
    graph = OwnerGraph()
    # Twice, so that owners are known whatever the order: the first round tells who matters.
    for obj in objects * 2:
        graph.observe(resource, obj)
    return graph


def test_an_object_without_owners_is_not_even_remembered() -> None:
    graph = OwnerGraph()
    assert graph.observe(CONFIG_MAPS, thing("alone")) == set()
    assert len(graph) == 0


def test_dependents_of_one_owner_share_what_is_kept_of_it() -> None:
    graph = graph_of(thing("a", "owner"), thing("b", "owner"), thing("c", "owner", blocks=True))
    one, same, other = (graph.get(name) for name in "abc")
    assert one is not None
    assert same is not None
    assert other is not None
    assert same.references is one.references
    assert same.owner_kinds is one.owner_kinds
    assert [each.blocks for each in (*one.references, *other.references)] == [False, True]


def test_long_names_of_owners_are_not_kept_for_other_objects() -> None:
    long = "x" * owner_graph.SHORT_OWNERS
    graph = graph_of(thing("a", long), thing("b", long))
    one, same = graph.get("a"), graph.get("b")
    assert one is not None
    assert same is not None
    assert same.references == one.references
    assert same.references is not one.references


def test_a_dependent_of_a_living_owner_stays() -> None:
    graph = graph_of(thing("owner"), thing("child", "owner"))
    assert decision(graph, "child") == LEAVE


def test_an_owner_nobody_has_seen_is_looked_for_first() -> None:
    graph = graph_of(thing("child", "stranger"))
    child = graph.get("child")
    assert child is not None
    assert decision(graph, "child") == FindOwners(child.references)


def test_an_owner_that_was_looked_for_in_vain_is_absent() -> None:
    graph = graph_of(thing("child", "owner"))
    graph.confirm_absent(OwnerLocation("", "ConfigMap", "ns", "owner", "owner"))
    assert decision(graph, "child") == DeleteObject("Background")


def test_an_owner_that_goes_takes_its_dependents_along() -> None:
    graph = graph_of(thing("owner"), thing("a", "owner"), thing("b", "owner"))
    assert graph.forget(CONFIG_MAPS, thing("owner")) == {"a", "b"}
    assert decision(graph, "a") == DeleteObject("Background")


def test_an_owner_that_goes_unseen_by_all_but_its_dependents_takes_them_along() -> None:
    graph = graph_of(thing("child", "owner"))
    assert graph.forget(CONFIG_MAPS, thing("owner")) == {"child"}
    assert decision(graph, "child") == DeleteObject("Background")


def test_an_owner_found_alive_just_before_its_end_was_heard_of_stays_dead() -> None:
    graph = graph_of(thing("child", "owner"))
    graph.forget(CONFIG_MAPS, thing("owner"))
    assert graph.confirm_present(CONFIG_MAPS, thing("owner")) == set()
    assert decision(graph, "child") == DeleteObject("Background")


def test_an_object_missing_from_a_list_is_looked_for_before_its_dependents_go() -> None:
    graph = graph_of(thing("owner"), thing("child", "owner"))
    assert graph.retain(CONFIG_MAPS, {"child"}) == {"child"}
    assert isinstance(decision(graph, "child"), FindOwners)


def test_when_a_kind_is_abolished_its_objects_are_absent_seen_or_not() -> None:
    graph = graph_of(thing("owner"), thing("child", "owner", kind="ConfigMap"))
    graph.observe(PODS, thing("a", "owner"))
    graph.observe(PODS, thing("b", "never-seen"))
    graph.observe(PODS, thing("c", "secret", kind="Secret"))
    assert set().union(*graph.abolish(CONFIG_MAPS)) == {"a", "b"}
    assert graph.get("child") is None
    assert [decision(graph, uid) for uid in "ab"] == [DeleteObject("Background")] * 2
    assert isinstance(decision(graph, "c"), FindOwners)


def test_a_kind_with_many_dependents_is_abolished_step_by_step() -> None:
    owners = [f"owner-{i}" for i in range(5_000)]
    graph = graph_of()
    graph.observe(PODS, thing("many", *owners))
    graph.observe(PODS, thing("other", "x", kind="Secret"))
    steps = graph.abolish(CONFIG_MAPS)
    assert next(steps) == set()
    graph.observe(PODS, thing("many", "new", *owners))
    assert len([*steps]) >= 5
    found = decision(graph, "many")
    assert isinstance(found, FindOwners)
    assert [each.uid for each in found.references] == ["new"]


def test_one_living_owner_is_enough_and_references_to_dead_ones_go() -> None:
    graph = graph_of(thing("alive"), thing("dead"), thing("child", "alive", "dead"))
    graph.forget(CONFIG_MAPS, thing("dead"))
    assert decision(graph, "child") == RemoveReferences(frozenset({"dead"}))


def test_an_owner_in_another_namespace_is_not_the_one_that_is_meant() -> None:
    graph = graph_of(thing("owner", namespace="elsewhere"), thing("child", "owner"))
    assert isinstance(decision(graph, "child"), FindOwners)
    graph.confirm_absent(OwnerLocation("", "ConfigMap", "ns", "owner", "owner"))
    assert decision(graph, "child") == DeleteObject("Background")


def test_an_owner_of_another_kind_is_not_the_one_that_is_meant() -> None:
    graph = graph_of(thing("owner"), thing("child", "owner", kind="Secret"))
    assert isinstance(decision(graph, "child"), FindOwners)


def test_an_owner_outside_all_namespaces_owns_in_any() -> None:
    graph = OwnerGraph()
    graph.observe(PODS, thing("child", "worker", kind="Node"))
    graph.observe(NODES, thing("worker", namespace=""))
    assert decision(graph, "child") == LEAVE


def test_an_object_that_is_going_already_is_left_alone() -> None:
    going = thing("child", "owner", deleting=True, finalizers=("example.com/x",))
    graph = graph_of(thing("owner"), going)
    graph.forget(CONFIG_MAPS, thing("owner"))
    assert decision(graph, "child") == LEAVE


@pytest.mark.parametrize(
    ("finalizer", "policy"), [(ORPHAN, "Orphan"), (FOREGROUND, "Foreground"), ("x/y", "Background")]
)
def test_a_dependent_goes_in_the_way_its_own_finalizers_ask_for(
    finalizer: str, policy: str
) -> None:
    graph = graph_of(thing("owner"), thing("child", "owner", finalizers=(finalizer,)))
    graph.forget(CONFIG_MAPS, thing("owner"))
    assert decision(graph, "child") == DeleteObject(policy)


# Foreground deletion.


def doomed(name: str, *owners: str, blocks: bool = False) -> Outline:
    return thing(name, *owners, deleting=True, finalizers=(FOREGROUND,), blocks=blocks)


def test_foreground_deletion_has_all_dependents_looked_at() -> None:
    graph = graph_of(thing("owner"), thing("a", "owner"), thing("b", "owner"))
    assert graph.observe(CONFIG_MAPS, doomed("owner")) == {"owner", "a", "b"}
    assert decision(graph, "a") == DeleteObject("Background")


def test_an_owner_waits_for_those_who_block_it() -> None:
    graph = graph_of(doomed("owner"), thing("a", "owner", blocks=True), thing("b", "owner"))
    assert decision(graph, "owner") == LEAVE
    assert "owner" in graph.forget(CONFIG_MAPS, thing("a", "owner", blocks=True))
    assert decision(graph, "owner") == RemoveForegroundFinalizer()


def test_a_dependent_that_stops_blocking_lets_the_owner_go() -> None:
    graph = graph_of(doomed("owner"), thing("a", "owner", blocks=True))
    assert "owner" in graph.observe(CONFIG_MAPS, thing("a", "owner", blocks=False))
    assert decision(graph, "owner") == RemoveForegroundFinalizer()


def test_a_dependent_with_dependents_of_its_own_goes_in_the_foreground() -> None:
    graph = graph_of(doomed("owner"), thing("a", "owner", blocks=True), thing("deep", "a"))
    assert decision(graph, "a") == DeleteObject("Foreground")


def test_a_circle_of_owners_is_broken() -> None:
    graph = graph_of(doomed("a", "b", blocks=True), thing("b", "a", blocks=True))
    assert decision(graph, "b") == DeleteObject("Foreground", unblock=True)


def test_a_living_owner_saves_a_dependent_from_foreground_deletion() -> None:
    graph = graph_of(doomed("owner"), thing("alive"), thing("a", "owner", "alive", blocks=True))
    assert decision(graph, "a") == RemoveReferences(frozenset({"owner"}))


# Orphaning.


def test_dependents_are_let_off_before_their_owner_goes() -> None:
    graph = graph_of(thing("owner"), thing("a", "owner"))
    going = thing("owner", deleting=True, finalizers=(ORPHAN,))
    assert "owner" in graph.observe(CONFIG_MAPS, going)
    action = decision(graph, "owner")
    assert isinstance(action, OrphanDependents)
    assert [dependent.name for dependent in action.dependents] == ["a"]


def test_an_owner_to_be_orphaned_matters_even_without_dependents() -> None:
    graph = OwnerGraph()
    going = thing("owner", deleting=True, finalizers=(ORPHAN,))
    assert graph.observe(CONFIG_MAPS, going) == {"owner"}
    assert decision(graph, "owner") == OrphanDependents(())


# What is kept.


def test_a_change_that_decides_nothing_wakes_nobody_but_is_known() -> None:
    graph = graph_of(thing("owner"), thing("child", "owner"))
    assert graph.observe(CONFIG_MAPS, thing("child", "owner", version="2")) == set()
    child = graph.get("child")
    assert child is not None
    assert child.version == "2"


def test_an_owner_is_forgotten_with_its_last_dependent() -> None:
    graph = graph_of(thing("owner"), thing("child", "owner"))
    graph.forget(CONFIG_MAPS, thing("child", "owner"))
    assert len(graph) == 0


NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["observe", "forget", "absent"]),
        NAMES,
        st.lists(NAMES, unique=True, max_size=2),
        st.booleans(),
    ),
    max_size=30,
)


@given(STEPS)
def test_when_everything_is_gone_nothing_is_kept(
    steps: list[tuple[str, str, list[str], bool]],
) -> None:
    graph = OwnerGraph()
    for step, name, owners, deleting in steps:
        match step:
            case "observe":
                finalizers = (FOREGROUND,) if deleting else ()
                obj = thing(name, *owners, deleting=deleting, finalizers=finalizers)
                graph.observe(CONFIG_MAPS, obj)
            case "forget":
                graph.forget(CONFIG_MAPS, thing(name))
            case _:
                graph.confirm_absent(OwnerLocation("", "ConfigMap", "ns", name, name))
    for name in "abcd":
        graph.forget(CONFIG_MAPS, thing(name))
    assert vars(graph) == vars(OwnerGraph())


def test_an_owner_in_another_namespace_is_misplaced_and_one_outside_all_is_not() -> None:
    graph = graph_of(
        thing("owner", namespace="other"),
        thing("at-large", namespace=""),
        thing("near"),
        thing("child", "owner", "at-large", "near", "unknown"),
        thing("outside", "owner", namespace=""),
    )
    for uid in ("child", "outside"):
        child = graph.get(uid)
        assert child is not None
        assert [each.uid for each in misplaced(graph, child)] == ["owner"]


def test_dependents_with_many_owners_are_found_without_a_walk_over_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [f"owner-{i:04}" for i in range(2_000)]
    children = [thing(f"child-{i}", *others, blocks=True) for i in range(5)]
    graph = graph_of(thing("owner-1999"), *children)
    compared = []
    whole = owner_graph.matches

    def counted(*about: Any) -> bool:
        compared.append(about)
        return whole(*about)

    monkeypatch.setattr(owner_graph, "matches", counted)
    owner = graph.get("owner-1999")
    assert owner is not None
    assert len(list(graph.blocking(owner))) == len(compared) == 5
