from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodCondition
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.controllers.workloads.pod_tallies import PodTallies
from kedge.machinery.durations import format_time

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
UIDS = ("a", "b")


def pod(
    uid: str,
    *,
    kind: str = "ReplicaSet",
    node: str = "n",
    phase: str = "Running",
    ready: int | None = None,
    leaving: bool = False,
    tier: str = "front",
) -> Pod:
    """A pod of the owner with this uid, ready for so many seconds."""
    owner = OwnerReference(kind=kind, name="web", uid=uid, controller=True)
    made = Pod(
        metadata=ObjectMeta(
            labels={"tier": tier},
            ownerReferences=[owner] if uid else [],
            deletionTimestamp=format_time(NOW) if leaving else "",
        )
    )
    conditions = []
    if ready is not None:
        since = format_time(NOW - timedelta(seconds=ready))
        conditions = [PodCondition(type="Ready", status="True", lastTransitionTime=since)]
    status = replace(made.status, phase=phase, conditions=conditions)
    return replace(made, spec=replace(made.spec, nodeName=node), status=status)


pods = st.builds(
    pod,
    st.sampled_from(("", *UIDS)),
    kind=st.sampled_from(("ReplicaSet", "Job")),
    node=st.sampled_from(("", "n")),
    phase=st.sampled_from(("Pending", "Running", "Failed")),
    ready=st.none() | st.integers(0, 3),
    leaving=st.booleans(),
    tier=st.sampled_from(("front", "back")),
)


def figures(tallies: PodTallies) -> list[object]:
    return [
        (
            uid,
            group.labels["tier"],
            (group.pods, group.active, group.waiting, group.ready, group.terminating),
            (group.available(2, NOW), group.next_available(2, NOW)),
        )
        for uid in UIDS
        for group in sorted(tallies.of(uid), key=lambda each: each.labels["tier"])
    ]


def counted(states: Iterable[Pod | None]) -> PodTallies:
    tallies = PodTallies("ReplicaSet")
    for state in states:
        if state is not None:
            tallies.changed(None, state)
    return tallies


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | pods), max_size=30))
def test_tallies_that_follow_changes_equal_those_of_the_last_states(
    changes: list[tuple[int, Pod | None]],
) -> None:
    tallies = PodTallies("ReplicaSet")
    states: dict[int, Pod | None] = {}
    for number, now in changes:
        tallies.changed(states.get(number), now)
        states[number] = now
    assert figures(tallies) == figures(counted(states.values()))


def test_pods_that_are_being_deleted_are_not_active() -> None:
    states = [pod("a"), pod("a", leaving=True), pod("a", phase="Failed", leaving=True)]
    [group] = counted(states).of("a")
    assert (group.pods, group.active, group.terminating) == (3, 1, 1)


def test_pod_is_available_when_it_has_been_ready_for_long_enough() -> None:
    [group] = counted([pod("a", ready=1), pod("a", ready=5), pod("a")]).of("a")
    assert group.available(0, NOW) == 2
    assert group.available(5, NOW) == 1
    assert group.next_available(5, NOW) == 4.0
    assert group.next_available(1, NOW) is None


def test_nothing_is_kept_of_an_owner_without_pods() -> None:
    tallies = counted([pod("a", ready=1)])
    tallies.changed(pod("a", ready=1), None)
    assert list(tallies.of("a")) == []
