from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.client.election import GIVEN_UP, LASTS, PAUSE, RENEWED, Election
from kedge.testing.local_server import LocalServer

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
OFFICE = "kube-scheduler"


class Candidate:
    """Somebody who wants to work, and notes since when he does."""

    def __init__(self, server: LocalServer, identity: str) -> None:
        self.election = Election(server.client, server.clock, OFFICE, identity)
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
