"""What a StatefulSet does next, without a server: the rules of its order, and that it arrives."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api.apps_v1.stateful_set import RESOURCE, StatefulSet
from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.controllers.workloads.stateful_pods import ordinal_of, revision_of
from kedge.controllers.workloads.stateful_steps import (
    CreatePod,
    DeletePod,
    LabelPod,
    counted,
    next_steps,
    split_pods,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = "web-old", "web-new"


def stateful_set(replicas: int = 3, **spec: Any) -> StatefulSet:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}
    selector = {"matchLabels": {"app": "web"}}
    full = {"replicas": replicas, "selector": selector, "template": template, **spec}
    return RESOURCE.strategy.default(
        RESOURCE.from_document({"metadata": {"name": "web", "uid": "u"}, "spec": full})
    )


def pod(ordinal: int, revision: str = OLD, state: str = "ready", **labels: str) -> Pod:
    name = f"web-{ordinal}"
    meta: dict[str, Any] = {
        "name": name,
        "uid": f"{name}-{revision}",
        "labels": {
            "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": name,
            **labels,
        },
    }
    if state == "leaving":
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    phase = {"waiting": "Pending", "failed": "Failed", "succeeded": "Succeeded"}.get(
        state, "Running"
    )
    ready = "True" if state in ("ready", "leaving") else "False"
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": phase, "conditions": [condition]}
    return PODS.from_document({"metadata": meta, "status": status})


def steps(owner: StatefulSet, *pods: Pod) -> list[tuple[str, int]]:
    """What is done, to which number."""
    found = []
    for step in next_steps(owner, pods, OLD, NEW, NOW):
        match step:
            case CreatePod(ordinal, _):
                found.append(("create", ordinal))
            case DeletePod(which):
                found.append(("delete", ordinal_of(which)))
            case LabelPod(which):
                found.append(("identify", ordinal_of(which)))
    return found


PARALLEL: dict[str, Any] = {"podManagementPolicy": "Parallel"}


@pytest.mark.parametrize("state", ["waiting", "unready", "leaving"])
def test_in_order_nothing_happens_while_a_pod_is_not_available(state: str) -> None:
    assert steps(stateful_set(), pod(0, NEW, state)) == []
    assert steps(stateful_set(**PARALLEL), pod(0, NEW, state)) == [("create", 1), ("create", 2)]


@pytest.mark.parametrize("state", ["failed", "succeeded"])
def test_a_pod_that_has_ended_makes_room(state: str) -> None:
    assert steps(stateful_set(), pod(0, NEW), pod(1, NEW, state)) == [("delete", 1)]


def test_a_hole_is_filled_before_anything_else() -> None:
    assert steps(stateful_set(), pod(0, OLD), pod(2, OLD), pod(5, OLD)) == [("create", 1)]


def test_numbers_outside_go_from_above_and_one_at_a_time() -> None:
    low, high, above = pod(0, NEW), pod(3, NEW), pod(4, NEW)
    assert steps(stateful_set(1), low, high, above) == [("delete", 4)]
    leaving = pod(4, NEW, "leaving")
    assert steps(stateful_set(1), low, high, leaving) == []
    assert steps(stateful_set(1), low, high, pod(4, NEW, "unready")) == [("delete", 4)]
    assert steps(stateful_set(1), low, pod(3, NEW, "unready"), above) == [("delete", 4)]
    both = pod(3, NEW, "unready"), pod(4, NEW, "unready")
    assert steps(stateful_set(1), low, *both) == []
    ended = pod(3, NEW, "failed"), pod(4, NEW, "failed")
    assert steps(stateful_set(1), low, *ended) == [("delete", 4)]


def test_with_another_first_number_those_below_it_go() -> None:
    owner = stateful_set(2, ordinals={"start": 1})
    assert steps(owner, pod(0, NEW), pod(1, NEW), pod(2, NEW)) == [("delete", 0)]


def test_a_name_with_no_number_is_nobodys_business() -> None:
    stranger = PODS.from_document({"metadata": {"name": "web-x"}})
    assert steps(stateful_set(0), stranger) == []


def test_a_pod_that_does_not_say_who_it_is_is_told() -> None:
    nameless = pod(0, NEW, **{"statefulset.kubernetes.io/pod-name": "other"})
    assert steps(stateful_set(2), nameless) == [("identify", 0), ("create", 1)]


def rolling(**pace: Any) -> dict[str, Any]:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": pace}}


def test_several_are_replaced_at_once_if_several_may_be_missing() -> None:
    pods = [pod(i) for i in range(4)]
    assert steps(stateful_set(4, **rolling(maxUnavailable=2)), *pods) == [
        ("delete", 3),
        ("delete", 2),
    ]
    assert steps(stateful_set(4, **rolling(maxUnavailable="30%")), *pods) == [("delete", 3)]
    partial = stateful_set(4, **rolling(maxUnavailable=3, partition=3))
    assert steps(partial, *pods) == [("delete", 3)]
    parallel = stateful_set(4, **rolling(maxUnavailable=2), **PARALLEL)
    assert steps(parallel, *pods[:3], pod(3, NEW, "unready")) == [("delete", 2)]


def test_a_missing_pod_below_the_partition_is_made_as_it_was() -> None:
    (step,) = next_steps(stateful_set(**rolling(partition=2)), [pod(0)], OLD, NEW, NOW)
    assert step == CreatePod(1, OLD)
    (step,) = next_steps(stateful_set(**rolling(partition=1)), [pod(0)], OLD, NEW, NOW)
    assert step == CreatePod(1, NEW)


def test_the_partition_counts_pods_from_the_first_ordinal() -> None:
    owner = stateful_set(3, ordinals={"start": 5}, **rolling(partition=1))
    assert [*next_steps(owner, [], OLD, NEW, NOW)] == [CreatePod(5, OLD)]
    assert [*next_steps(owner, [pod(5)], OLD, NEW, NOW)] == [CreatePod(6, NEW)]
    pods = [pod(5), pod(6), pod(7)]
    assert steps(owner, *pods) == [("delete", 7)]
    assert steps(owner, *pods[:2], pod(7, NEW)) == [("delete", 6)]
    assert steps(owner, pod(5), pod(6, NEW), pod(7, NEW)) == []


def test_without_a_pace_a_missing_pod_is_made_as_it_was_while_its_index_is_in_the_old_ones() -> (
    None
):
    owner = stateful_set(3, ordinals={"start": 5})
    strategy = replace(owner.spec.updateStrategy, rollingUpdate=None)
    owner = replace(owner, spec=replace(owner.spec, updateStrategy=strategy))
    during = replace(owner, status=replace(owner.status, currentReplicas=1))
    assert [*next_steps(during, [], OLD, NEW, NOW)] == [CreatePod(5, OLD)]
    assert [*next_steps(during, [pod(5)], OLD, NEW, NOW)] == [CreatePod(6, NEW)]


def test_a_set_that_is_leaving_does_nothing() -> None:
    owner = stateful_set()
    meta = replace(owner.metadata, deletionTimestamp="2026-01-01T00:00:00Z")
    assert not [*next_steps(replace(owner, metadata=meta), [], OLD, NEW, NOW)]


def test_a_rollout_is_over_when_all_are_new_and_ready() -> None:
    pods = [pod(0), pod(1, NEW), pod(2, NEW)]
    during = counted(stateful_set(), pods, OLD, NEW, NOW)
    assert (during.currentRevision, during.currentReplicas, during.updatedReplicas) == (OLD, 1, 2)
    after = counted(stateful_set(2), pods[1:], OLD, NEW, NOW)
    assert (after.currentRevision, after.currentReplicas) == (NEW, 2)
    by_hand = stateful_set(2, updateStrategy={"type": "OnDelete"})
    assert counted(by_hand, pods[1:], OLD, NEW, NOW).currentRevision == OLD


def test_a_set_that_is_updated_by_hand_replaces_nothing() -> None:
    by_hand = stateful_set(2, updateStrategy={"type": "OnDelete"})
    assert steps(by_hand, pod(0), pod(1)) == []
    assert [*next_steps(by_hand, [pod(0)], OLD, NEW, NOW)] == [CreatePod(1, NEW)]


def test_without_a_pace_all_pods_are_replaced_one_by_one() -> None:
    owner = stateful_set(2)
    strategy = replace(owner.spec.updateStrategy, rollingUpdate=None)
    owner = replace(owner, spec=replace(owner.spec, updateStrategy=strategy))
    assert steps(owner, pod(0), pod(1)) == [("delete", 1)]
    assert steps(owner, pod(0), pod(1, NEW)) == [("delete", 0)]


def test_while_too_many_are_unavailable_no_more_are_replaced() -> None:
    owner = stateful_set(4, **rolling(maxUnavailable=1), **PARALLEL)
    ill = pod(3, NEW, "unready"), pod(2, NEW, "unready")
    assert steps(owner, pod(0), pod(1), *ill) == []


def test_a_pod_that_leaves_is_not_replaced_again() -> None:
    owner = stateful_set(3, **rolling(maxUnavailable=2), **PARALLEL)
    assert steps(owner, pod(0), pod(1), pod(2, OLD, "leaving")) == [("delete", 1)]


def test_a_pod_is_waited_for_until_it_has_been_ready_for_so_long() -> None:
    at_once, later = stateful_set(2), stateful_set(2, minReadySeconds=10)
    assert steps(at_once, pod(0, NEW)) == [("create", 1)]
    assert steps(later, pod(0, NEW)) == []
    assert counted(later, [pod(0, NEW)], NEW, NEW, NOW).availableReplicas == 0
    assert counted(at_once, [pod(0, NEW)], NEW, NEW, NOW).availableReplicas == 1


def test_a_pod_that_runs_but_is_not_ready_is_counted_as_such() -> None:
    status = counted(stateful_set(2), [pod(0, NEW), pod(1, NEW, "unready")], NEW, NEW, NOW)
    assert (status.replicas, status.readyReplicas) == (2, 1)


def test_a_set_of_none_is_all_new() -> None:
    assert counted(stateful_set(0), [], OLD, NEW, NOW).currentRevision == NEW


STATES = st.sampled_from(["ready", "waiting", "unready", "leaving", "failed"])
WORLDS = st.dictionaries(
    st.integers(0, 6), st.tuples(st.sampled_from([OLD, NEW]), STATES), max_size=7
)


@given(WORLDS, st.integers(0, 5), st.sampled_from(["OrderedReady", "Parallel"]), st.integers(0, 2))
def test_whatever_there_is_the_set_arrives_if_pods_get_well(
    world: dict[int, tuple[str, str]], replicas: int, policy: str, start: int
) -> None:
    owner = stateful_set(replicas, podManagementPolicy=policy, ordinals={"start": start})
    pods = {ordinal: pod(ordinal, *each) for ordinal, each in world.items()}
    for _ in range(60):
        # Nodes do their part: what is leaving goes, what waits gets well.
        for ordinal, each in list(pods.items()):
            if each.metadata.deletionTimestamp:
                del pods[ordinal]
            elif each.status.phase != "Failed":
                pods[ordinal] = pod(ordinal, revision_of(each))
        found = [*next_steps(owner, list(pods.values()), OLD, NEW, NOW)]
        deeds = [step for step in found if not isinstance(step, LabelPod)]
        assert policy == "Parallel" or len(deeds) <= 1
        if not found:
            break
        for step in found:
            match step:
                case CreatePod(ordinal, revision):
                    assert ordinal not in pods
                    pods[ordinal] = pod(ordinal, revision, "waiting")
                case DeletePod(each):
                    pods[ordinal_of(each)] = pod(ordinal_of(each), revision_of(each), "leaving")
    assert sorted(pods) == list(range(start, start + replicas))
    assert {revision_of(each) for each in pods.values()} <= {NEW}


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_set_of_billions_is_walked_only_as_far_as_somebody_asks(policy: str) -> None:
    owner = stateful_set(2**31 - 1, podManagementPolicy=policy)
    some = [*islice(next_steps(owner, [pod(0), pod(1)], OLD, NEW, NOW), 3)]
    assert some[0] == CreatePod(2, NEW)
    assert len(some) == (1 if policy == "OrderedReady" else 3)


def test_a_set_of_billions_rolls_without_a_look_at_the_numbers_that_nobody_has() -> None:
    owner = stateful_set(2**31 - 1, **rolling(partition=2**31 - 1, maxUnavailable="100%"))
    slots, condemned = split_pods(owner, [pod(0), pod(5)])
    assert (len(slots), condemned) == (2**31 - 1, [])
    assert [ordinal_of(each) for each in slots.pods()] == [5, 0]
    assert len(slots.beyond(2**31 - 2)) == 1
    (step, *_) = next_steps(owner, [pod(0), pod(5)], OLD, NEW, NOW)
    assert step == CreatePod(1, OLD)
