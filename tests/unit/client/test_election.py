from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.client.election import (
    ALONE,
    CONTESTED,
    GIVEN_UP,
    LASTS,
    PAUSE,
    RENEWED,
    Election,
    ElectionTimes,
    while_leading,
)
from kedge.client.transport import Call
from kedge.machinery.errors import StatusError, unavailable
from kedge.machinery.travel_clock import TravelClock
from kedge.machinery.write_guard import WriteGuard, current_guard
from kedge.testing.local_server import LocalServer

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
OFFICE = "kube-scheduler"


class Candidate:
    """Somebody who wants to work, and notes since when he does."""

    def __init__(self, server: LocalServer, identity: str, times: ElectionTimes = ALONE) -> None:
        self.election = Election(server.client, server.clock, OFFICE, identity, lambda: times)
        self.working = False
        self._clock = server.clock
        self.task = server.start(self.election.lead(self._work))

    async def _work(self) -> None:
        self.working = True
        try:
            await self._clock.sleep(1e9)
        finally:
            self.working = False


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as server:
        yield server


async def lease(server: LocalServer) -> Any:
    return (await server.get(f"{LEASES}/{OFFICE}"))["spec"]


async def test_the_first_one_leads_at_once_and_the_other_waits(server: LocalServer) -> None:
    first = Candidate(server, "a")
    await server.settle()
    second = Candidate(server, "b")
    await server.clock.advance(5 * LASTS)
    assert (first.working, second.working) == (True, False)
    spec = await lease(server)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("a", 0)


async def test_when_the_leader_dies_another_takes_over_after_the_lease_has_lapsed(
    server: LocalServer,
) -> None:
    first = Candidate(server, "a")
    await server.settle()
    second = Candidate(server, "b")
    await server.clock.advance(RENEWED)
    first.task.cancel()
    await server.clock.advance(LASTS - RENEWED)
    assert not second.working
    await server.clock.advance(RENEWED + PAUSE)
    assert second.working
    assert (await lease(server))["leaseTransitions"] == 1


async def test_who_comes_back_under_the_same_name_leads_at_once(server: LocalServer) -> None:
    first = Candidate(server, "a")
    await server.settle()
    first.task.cancel()
    again = Candidate(server, "a")
    await server.settle()
    assert again.working
    assert (await lease(server))["leaseTransitions"] == 0


async def test_who_resigns_is_followed_at_the_next_look(server: LocalServer) -> None:
    first = Candidate(server, "a")
    await server.settle()
    second = Candidate(server, "b")
    await server.settle()
    first.task.cancel()
    await first.election.resign()
    await server.clock.advance(PAUSE)
    assert second.working


async def test_a_leader_whose_lease_was_taken_stops(server: LocalServer) -> None:
    first = Candidate(server, "a")
    await server.settle()
    await server.merge(
        f"{LEASES}/{OFFICE}", {"spec": {"holderIdentity": "usurper", "leaseDurationSeconds": 15}}
    )
    await server.clock.advance(GIVEN_UP + RENEWED)
    assert not first.working
    assert (await lease(server))["holderIdentity"] == "usurper"


async def test_a_lease_that_was_deleted_is_made_anew(server: LocalServer) -> None:
    first = Candidate(server, "a")
    await server.settle()
    await server.delete(f"{LEASES}/{OFFICE}")
    await server.clock.advance(2 * RENEWED)
    assert first.working
    assert (await lease(server))["holderIdentity"] == "a"


async def test_a_candidate_fails_only_while_no_server_leads(server: LocalServer) -> None:
    waiting = Election(server.client, server.clock, OFFICE, "b")
    assert waiting.failure() == "waiting for the lease"
    Candidate(server, "a")
    await server.settle()
    server.start(waiting.lead(server.settle))
    await server.clock.advance(PAUSE)
    assert waiting.failure() == ""


async def test_one_of_several_servers_takes_over_in_less_than_five_seconds(
    server: LocalServer,
) -> None:
    first = Candidate(server, "a", CONTESTED)
    await server.settle()
    second = Candidate(server, "b", CONTESTED)
    for _ in range(50):
        await server.clock.advance(0.1)
    first.task.cancel()
    took = 0.0
    while not second.working:
        await server.clock.advance(0.1)
        took += 0.1
    assert 2.9 <= took < 4.5


async def test_one_of_several_servers_takes_over_at_once_from_one_that_resigns(
    server: LocalServer,
) -> None:
    first = Candidate(server, "a", CONTESTED)
    await server.settle()
    second = Candidate(server, "b", CONTESTED)
    await server.clock.advance(3)
    first.task.cancel()
    await first.election.resign()
    await server.clock.advance(CONTESTED.pause)
    assert second.working


async def test_a_leader_leads_on_when_another_server_joins(server: LocalServer) -> None:
    """A server alone renews its lease less often than one of several gives it up."""
    times = ALONE
    election = Election(server.client, server.clock, OFFICE, "a", lambda: times)
    begun = 0
    put = server.app.api.store.put

    async def put_later(*arguments: Any, **options: Any) -> Any:
        await server.clock.sleep(0.01)
        return await put(*arguments, **options)

    server.app.api.store.put = put_later  # type: ignore[method-assign]

    async def work() -> None:
        nonlocal begun
        begun += 1
        await server.clock.sleep(1e9)

    server.start(election.lead(work))
    await server.clock.advance(ALONE.renewed - 0.5)
    times = CONTESTED
    for _ in range(50):
        await server.clock.advance(0.1)
    assert begun == 1
    assert (await lease(server))["leaseDurationSeconds"] == CONTESTED.lasts
    assert election.is_leading()


async def test_a_leader_leads_on_when_the_time_of_a_cluster_for_tests_is_moved(
    server: LocalServer,
) -> None:
    clock = TravelClock(server.clock)
    election = Election(server.client, clock, OFFICE, "a")
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        await clock.machine.sleep(1e9)

    server.start(election.lead(work))
    await server.settle()
    for _ in range(3):
        clock.advance(3600)
        await server.settle()
        assert election.is_leading()
    assert begun == 1


async def test_a_leader_stops_before_another_can_begin(server: LocalServer) -> None:
    """Also if its server takes for ever to answer."""

    first = Candidate(server, "a", CONTESTED)
    await server.settle()
    second = Candidate(server, "b", CONTESTED)
    await server.clock.advance(1)
    api = server.app.api
    put = api.store.put

    async def hang(*_: Any, **__: Any) -> Any:
        await server.clock.sleep(1e9)

    api.store.put = hang  # type: ignore[method-assign]
    both = False
    for _ in range(60):
        await server.clock.advance(0.1)
        both = both or (first.working and second.working)
    assert not first.working
    assert not first.election.is_leading()
    api.store.put = put  # type: ignore[method-assign]
    assert not both


async def test_a_former_leader_writes_no_more(server: LocalServer) -> None:
    first = Candidate(server, "a", CONTESTED)
    await server.settle()
    calls: list[str] = []

    def note(call: Call) -> Any:
        calls.append(call.method)

    handle = while_leading(first.election, note)
    handle(Call("PUT", "/x"))
    first.task.cancel()
    await server.clock.advance(CONTESTED.lasts)
    with pytest.raises(StatusError, match="leads no longer"):
        handle(Call("PUT", "/x"))
    handle(Call("GET", "/x"))
    assert calls == ["PUT", "GET"]


async def test_a_term_begins_before_the_work_and_ends_with_a_refused_write(
    server: LocalServer,
) -> None:
    begun: list[tuple[str, int]] = []
    terms: list[WriteGuard] = []

    async def begin(office: str, revision: int) -> WriteGuard:
        begun.append((office, revision))
        terms.append(WriteGuard("/term", len(begun)))
        return terms[-1]

    election = Election(
        server.client, server.clock, OFFICE, "a", lambda: CONTESTED, begin_term=begin
    )
    guards: list[WriteGuard | None] = []

    async def work() -> None:
        guards.append(election.term)
        await server.clock.sleep(1e9)

    server.start(election.lead(work))
    await server.settle()
    revision = (await server.get(f"{LEASES}/{OFFICE}"))["metadata"]["resourceVersion"]
    assert begun == [(OFFICE, int(revision))]
    terms[0].is_lost = True
    await server.clock.advance(CONTESTED.renewed + CONTESTED.pause)
    assert guards == terms
    assert len(terms) == 2, "the lease is still its own"


async def test_nobody_works_whose_term_cannot_begin(server: LocalServer) -> None:
    async def begin(office: str, revision: int) -> WriteGuard:
        raise unavailable("another one has the lease")

    election = Election(
        server.client, server.clock, OFFICE, "a", lambda: CONTESTED, begin_term=begin
    )
    worked: list[bool] = []

    async def work() -> None:
        worked.append(True)

    server.start(election.lead(work))
    await server.clock.advance(2 * CONTESTED.lasts)
    assert not worked


async def test_writes_of_a_leader_are_guarded_until_they_are_done(server: LocalServer) -> None:
    first = Candidate(server, "a", CONTESTED)
    await server.settle()
    first.election.term = term = WriteGuard("/term", 1)
    seen: list[WriteGuard | None] = []

    async def answer(call: Call) -> Any:
        seen.append(current_guard())

    handle = while_leading(first.election, answer)
    await handle(Call("PUT", "/x"))  # type: ignore[misc]
    await handle(Call("GET", "/x"))  # type: ignore[misc]
    assert seen == [term, None]
    assert current_guard() is None


async def test_a_machine_that_was_suspended_leads_no_longer(server: LocalServer) -> None:
    first = Candidate(server, "a", CONTESTED)
    await server.settle()
    assert first.election.is_leading()
    server.clock.suspended += CONTESTED.lasts
    assert not first.election.is_leading()
