from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.apps_v1.deployment import (
    Deployment,
    DeploymentSpec,
    DeploymentStrategy,
    RollingUpdateDeployment,
)
from kedge.api.apps_v1.replica_set import ReplicaSet, ReplicaSetSpec, ReplicaSetStatus
from kedge.api.model import ObjectMeta
from kedge.controllers.workloads import rollout
from kedge.controllers.workloads.rollout import (
    DESIRED,
    MOST,
    DeploymentReplicaSets,
    ReplicaSetResize,
)

RECREATE = DeploymentStrategy(type="Recreate")


def deployment(replicas: int, surge: int | str = 0, unavailable: int | str = 0) -> Deployment:
    pace = RollingUpdateDeployment(maxSurge=surge, maxUnavailable=unavailable)
    strategy = DeploymentStrategy(type="RollingUpdate", rollingUpdate=pace)
    return Deployment(spec=DeploymentSpec(replicas=replicas, strategy=strategy))


def replica_set(
    age: int, replicas: int, available: int = 0, annotations: dict[str, str] | None = None
) -> ReplicaSet:
    """The greater the age, the older."""
    meta = ObjectMeta(
        name=f"age-{age}",
        uid=f"uid-{age}",
        creationTimestamp=f"2030-01-01T00:00:{59 - age:02}Z",
        annotations=annotations or {},
    )
    status = ReplicaSetStatus(replicas=replicas, availableReplicas=available)
    return ReplicaSet(metadata=meta, spec=ReplicaSetSpec(replicas=replicas), status=status)


def sizes(resizes: list[ReplicaSetResize]) -> dict[str, int]:
    return {each.set.metadata.name: each.size for each in resizes}


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "expected"),
    [
        ("0%", "0%", 10, (0, 1)),
        ("39%", "39%", 10, (4, 3)),
        ("1%", "25%", 2, (1, 0)),
        ("0%", "1%", 2, (0, 1)),
        (2, 3, 10, (2, 3)),
        ("150%", 0, 10, (15, 0)),
        ("25%", "25%", 3, (1, 0)),
        (0, 20, 10, (0, 10)),
        ("0%", "0%", 0, (0, 0)),
    ],
)
def test_surge_is_rounded_up_and_unavailable_down_but_never_both_to_nothing(
    surge: int | str, unavailable: int | str, replicas: int, expected: tuple[int, int]
) -> None:
    made = deployment(replicas, surge, unavailable)
    assert (rollout.surge(made), rollout.unavailable(made)) == expected


def test_recreate_knows_no_pace() -> None:
    made = Deployment(spec=DeploymentSpec(replicas=5, strategy=RECREATE))
    assert (rollout.surge(made), rollout.unavailable(made)) == (0, 0)
    assert rollout.first_size(made, ()) == 5


@pytest.mark.parametrize(
    ("surge", "old", "new", "expected"),
    [
        (0, 10, 0, {}),
        (2, 10, 0, {"age-0": 2}),
        (2, 5, 0, {"age-0": 7}),
        (2, 10, 2, {}),
        (2, 2, 11, {"age-0": 10}),
        (5, 0, 8, {"age-0": 10}),
    ],
)
def test_new_set_grows_into_the_room_there_is(
    surge: int, old: int, new: int, expected: dict[str, int]
) -> None:
    sets = DeploymentReplicaSets(replica_set(0, new), [replica_set(1, old)])
    assert sizes(rollout.grown(deployment(10, surge, 0), sets)) == expected


@pytest.mark.parametrize(
    ("unavailable", "old", "old_available", "new", "new_available", "expected"),
    [
        (0, 10, 10, 0, 0, {"age-1": 9}),
        (2, 10, 10, 0, 0, {"age-1": 8}),
        (2, 10, 8, 0, 0, {"age-1": 8}),
        (2, 10, 9, 0, 0, {"age-1": 8}),
        (2, 8, 8, 2, 0, {}),
        (2, 8, 8, 2, 2, {"age-1": 6}),
        (2, 8, 6, 2, 0, {}),
        (2, 10, 1, 0, 0, {"age-1": 8}),
        (2, 0, 0, 10, 10, {}),
    ],
)
def test_old_set_gives_what_is_not_needed(
    unavailable: int,
    old: int,
    old_available: int,
    new: int,
    new_available: int,
    expected: dict[str, int],
) -> None:
    sets = DeploymentReplicaSets(
        replica_set(0, new, new_available), [replica_set(1, old, old_available)]
    )
    assert sizes(rollout.shrunk(deployment(10, 0, unavailable), sets)) == expected


def test_broken_pods_go_before_good_ones_of_an_older_set() -> None:
    old = [replica_set(2, 5, 5), replica_set(1, 5, 1)]
    sets = DeploymentReplicaSets(replica_set(0, 2, 2), old)
    assert sizes(rollout.shrunk(deployment(10, 2, 2), sets)) == {"age-1": 1}


def test_oldest_set_shrinks_first() -> None:
    old = [replica_set(2, 3, 3), replica_set(1, 5, 5)]
    sets = DeploymentReplicaSets(replica_set(0, 4, 4), old)
    assert sizes(rollout.shrunk(deployment(10, 2, 2), sets)) == {"age-2": 0, "age-1": 4}


def test_roll_over_takes_stuck_pods_at_once() -> None:
    # Ten wanted, two may be missing, three more allowed; a rollout is stuck with five new pods
    # when another template comes.
    old = [replica_set(2, 8, 8), replica_set(1, 5, 0)]
    made = deployment(10, 3, 2)
    assert rollout.first_size(made, old) == 0
    assert sizes(rollout.shrunk(made, DeploymentReplicaSets(replica_set(0, 0), old))) == {
        "age-1": 0
    }


def scaled(before: int, surge: int = 0) -> dict[str, str]:
    """What a set notes of a Deployment that had so many pods."""
    return {DESIRED: str(before), MOST: str(before + surge)}


@pytest.mark.parametrize(
    ("before", "after", "now", "expected"),
    [
        (10, 12, [10], [12]),
        (10, 5, [10], [5]),
        (5, 10, [2, 3], [4, 6]),
        (5, 3, [2, 3], [1, 2]),
        (9, 4, [8, 1], [4, 0]),
        (7, 10, [2, 3, 2], [3, 4, 3]),
        (13, 8, [2, 8, 3], [1, 5, 2]),
        (3, 4, [1, 1, 1], [2, 1, 1]),
        (3, 2, [1, 1, 1], [1, 1, 0]),
        (6, 0, [3, 2, 1], [0, 0, 0]),
        (6, 8, [1, 1, 4], [1, 1, 6]),
        (6, 4, [1, 1, 4], [1, 1, 2]),
        (6, 7, [3, 3], [4, 3]),
    ],
)
def test_sets_are_scaled_in_proportion(
    before: int, after: int, now: list[int], expected: list[int]
) -> None:
    notes = scaled(before)
    new, *old = [replica_set(age, count, 0, notes) for age, count in enumerate(now)]
    sets = DeploymentReplicaSets(new, old[::-1])
    made = deployment(after)
    assert rollout.is_scaled(made, sets) == (after != before)
    found = sizes(rollout.rescaled(made, sets))
    assert [found[f"age-{age}"] for age in range(len(now))] == expected


@pytest.mark.parametrize(
    ("before", "after", "now", "expected"),
    [
        ((10, 2), (20, 2), [6, 6], [11, 11]),
        ((10, 3), (50, 6), [5, 8], [22, 34]),
    ],
)
def test_surge_is_a_part_of_the_whole_that_is_shared(
    before: tuple[int, int], after: tuple[int, int], now: list[int], expected: list[int]
) -> None:
    new, old = [replica_set(age, count, 0, scaled(*before)) for age, count in enumerate(now)]
    found = sizes(rollout.rescaled(deployment(*after), DeploymentReplicaSets(new, [old])))
    assert [found["age-0"], found["age-1"]] == expected


def test_scaling_while_the_template_changes_leaves_the_new_set_to_the_rollout() -> None:
    old = [replica_set(2, 3, 0, scaled(10)), replica_set(1, 7, 0, scaled(10))]
    found = sizes(rollout.rescaled(deployment(14), DeploymentReplicaSets(None, old)))
    assert found == {"age-1": 10, "age-2": 4}


def test_sets_that_note_no_size_leave_all_of_the_change_to_the_largest() -> None:
    sets = DeploymentReplicaSets(replica_set(0, 2), [replica_set(1, 3)])
    assert sizes(rollout.rescaled(deployment(10), sets)) == {"age-0": 2, "age-1": 8}


def test_recreate_scales_the_one_set_with_pods_and_leaves_several_to_the_update() -> None:
    made = Deployment(spec=DeploymentSpec(replicas=6, strategy=RECREATE))
    one = DeploymentReplicaSets(replica_set(0, 0), [replica_set(1, 3)])
    assert sizes(rollout.rescaled(made, one)) == {"age-1": 6}
    two = DeploymentReplicaSets(replica_set(0, 1), [replica_set(1, 3)])
    assert rollout.rescaled(made, two) == []


@pytest.mark.parametrize(
    ("noted", "is_scaled"),
    [(["3", "3"], False), (["3", "2"], True), (["", "3"], False), (["", "2"], True)],
)
def test_a_deployment_is_scaled_if_one_set_notes_another_size(
    noted: list[str], is_scaled: bool
) -> None:
    new, old = [replica_set(age, 1, 0, {DESIRED: text}) for age, text in enumerate(noted)]
    assert rollout.is_scaled(deployment(3), DeploymentReplicaSets(new, [old])) is is_scaled


def test_without_a_new_set_nothing_grows_or_shrinks() -> None:
    sets = DeploymentReplicaSets(None, [replica_set(1, 9, 9)])
    assert rollout.grown(deployment(3), sets) == []
    assert rollout.shrunk(deployment(3), sets) == []


def test_scaling_from_nothing_wakes_the_newest_set() -> None:
    sets = DeploymentReplicaSets(replica_set(0, 0), [replica_set(2, 0), replica_set(1, 0)])
    assert sizes(rollout.rescaled(deployment(6), sets)) == {"age-0": 6}
    assert sizes(rollout.rescaled(deployment(6), DeploymentReplicaSets(None, sets.old))) == {
        "age-1": 6
    }


def test_full_new_set_leaves_nothing_to_adopted_ones() -> None:
    sets = DeploymentReplicaSets(replica_set(0, 3, 3, scaled(3)), [replica_set(1, 2, 2, scaled(2))])
    assert sizes(rollout.rescaled(deployment(3), sets)) == {"age-1": 0}


def test_full_new_set_that_is_broken_takes_no_old_pod() -> None:
    sets = DeploymentReplicaSets(
        replica_set(0, 2, 0, scaled(2, 1)), [replica_set(1, 1, 1, scaled(2, 1))]
    )
    assert sizes(rollout.rescaled(deployment(2, 1, 1), sets)) == {"age-0": 2, "age-1": 1}


@pytest.mark.parametrize("noted", ["", "-1", "x", "3.0", str(2**31)])
def test_tampered_annotation_is_no_number(noted: str) -> None:
    assert rollout.noted_number(replica_set(0, 1, 0, {DESIRED: noted}), DESIRED) is None


def test_greatest_number_of_replicas_is_a_number() -> None:
    noted = replica_set(0, 1, 0, {DESIRED: str(2**31 - 1)})
    assert rollout.noted_number(noted, DESIRED) == 2**31 - 1


counts = st.integers(0, 30)
paces = st.one_of(st.integers(0, 8), st.integers(0, 100).map(lambda share: f"{share}%"))


@given(replicas=counts, surge=paces, unavailable=paces, old=st.lists(counts, max_size=3))
def test_rolling_ends_and_keeps_its_promises(
    replicas: int, surge: int | str, unavailable: int | str, old: list[int]
) -> None:
    """Never too many pods more, never too few available, and in the end all are new."""
    made = deployment(replicas, surge, unavailable)
    sets: Any = DeploymentReplicaSets(
        replica_set(0, rollout.first_size(made, [replica_set(9, sum(old))])),
        [replica_set(9 - i, count, count) for i, count in enumerate(old)],
    )
    available = sum(old)
    for _ in range(200):
        resizes = rollout.grown(made, sets) or rollout.shrunk(made, sets)
        new = {each.set.metadata.name: each.size for each in resizes}
        before = sets
        sets = DeploymentReplicaSets(*_settled(sets, new))
        assert rollout.total(sets.all) <= max(rollout.most(made), rollout.total(before.all))
        fewer = sum(each.status.availableReplicas for each in sets.all)
        assert fewer >= min(available, replicas - rollout.unavailable(made))
        available = fewer
        if not resizes and sets == before:
            break
    assert [rollout.size(each) for each in sets.all] == [0] * len(old) + [replicas]


def _settled(
    sets: DeploymentReplicaSets, sizes: dict[str, int]
) -> tuple[ReplicaSet, list[ReplicaSet]]:
    """Everything as it is once all pods that are wanted are available."""
    found = [
        replica_set(
            int(each.metadata.name.removeprefix("age-")),
            count := sizes.get(each.metadata.name, rollout.size(each)),
            count,
        )
        for each in sets.all
    ]
    return found[-1], found[:-1]
