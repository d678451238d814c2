"""Who is sent away when there is too much to do, and who is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.apiserver.inflight import InFlight, RequestLimit, RequestPlace, counted
from kedge.apiserver.request import ANONYMOUS, User
from kedge.machinery.errors import StatusError

ADA = User("ada", ("system:authenticated",))
ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
NODE = User("system:node:n", ("system:nodes", "system:authenticated"))


def entered(flight: InFlight, verb: str, user: User) -> bool:
    try:
        flight.enter(verb, user)
    except StatusError:
        return False
    return True


def admitted(flight: InFlight, verb: str, user: User) -> int:
    """How many get in before the first is sent away."""
    count = 0
    while count < 10_000 and entered(flight, verb, user):
        count += 1
    return count


def test_flood_leaves_places_for_administrators_and_more_for_nodes() -> None:
    flight = InFlight(writes=RequestLimit(200, 100))
    assert admitted(flight, "create", ADA) == 200
    assert admitted(flight, "patch", ANONYMOUS) == 0
    assert admitted(flight, "delete", ADMIN) == 50
    assert admitted(flight, "update", NODE) == 50
    assert not entered(flight, "update", NODE)


def test_clusters_own_controllers_have_reserved_places() -> None:
    flight = InFlight(writes=RequestLimit(1, 2))
    flight.enter("create", ADA)
    assert entered(flight, "create", User("system:kube-controller-manager"))
    group = "system:serviceaccounts:kube-system"
    assert entered(flight, "create", User("system:serviceaccount:kube-system:x", (group,)))


def test_clusters_own_writes_do_not_take_the_places_of_tenants() -> None:
    flight = InFlight(writes=RequestLimit(20, 10))
    assert admitted(flight, "create", NODE) == 30
    assert admitted(flight, "create", ADA) == 20
    assert not entered(flight, "create", ADMIN)


def test_writes_do_not_take_the_places_of_reads() -> None:
    flight = InFlight(reads=RequestLimit(3, 0), writes=RequestLimit(1, 0))
    assert admitted(flight, "create", ADA) == 1
    assert admitted(flight, "get", ADA) == 3
    assert not entered(flight, "list", ADA)


def test_whoever_leaves_makes_room() -> None:
    flight = InFlight(writes=RequestLimit(1, 0))
    place = flight.enter("create", ADA)
    assert not entered(flight, "create", ADA)
    flight.leave(place)
    assert entered(flight, "create", ADA)


def test_answer_to_one_too_many_says_when_to_come_back() -> None:
    flight = InFlight(writes=RequestLimit(1, 0))
    flight.enter("create", ADA)
    with pytest.raises(StatusError) as error:
        flight.enter("create", ADA)
    assert error.value.retry_after == 1
    status = error.value.status()
    assert (status["code"], status["reason"]) == (429, "TooManyRequests")
    assert status["message"] == "Too many requests, please try again later."
    assert status["details"] == {"retryAfterSeconds": 1}
    assert flight.refused == [0, 1]


def test_name_alone_gives_nobody_a_reserved_place() -> None:
    flight = InFlight(writes=RequestLimit(1, 10))
    flight.enter("create", ADA)
    assert not entered(flight, "create", User("system:node:n", ("system:authenticated",)))
    assert not entered(flight, "create", User("eve", ("system:nodes",)))


def test_no_limit_is_no_limit() -> None:
    assert admitted(InFlight(writes=RequestLimit(0, 0)), "create", ADA) == 10_000


@pytest.mark.parametrize(
    ("verb", "subresource", "takes_a_place"),
    [
        ("get", "", True),
        ("create", "", True),
        ("update", "status", True),
        ("watch", "", False),
        ("get", "log", False),
        ("create", "exec", False),
    ],
)
def test_what_waits_more_than_it_works_is_not_counted(
    verb: str, subresource: str, takes_a_place: bool
) -> None:
    assert counted(verb, subresource) is takes_a_place


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["get", "create"]))))
def test_counts_are_those_who_entered_and_have_not_left(moves: list[tuple[bool, str]]) -> None:
    flight = InFlight(reads=RequestLimit(4, 2), writes=RequestLimit(3, 2))
    inside: list[RequestPlace] = []
    for leaves, verb in moves:
        if leaves and inside:
            flight.leave(inside.pop())
        elif not leaves:
            try:
                inside.append(flight.enter(verb, NODE))
            except StatusError:
                assert sorts(inside).count(0 if verb == "get" else 1) == (6 if verb == "get" else 5)
    assert flight.counts == [sorts(inside).count(0), sorts(inside).count(1)]


def sorts(places: list[RequestPlace]) -> list[int]:
    return [sort for sort, _ in places]
