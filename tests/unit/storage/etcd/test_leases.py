import pytest

from kedge.storage.etcd import leases
from kedge.storage.etcd.leases import LATER_SECONDS, SharedLeases
from kedge.testing.clock import FakeClock


class Grants:
    """Grants leases, numbered from 1."""

    def __init__(self) -> None:
        self.seconds: list[int] = []

    async def grant(self, seconds: int) -> int:
        self.seconds.append(seconds)
        return len(self.seconds)


async def test_keys_of_one_minute_share_a_lease_that_outlives_them() -> None:
    clock, grants = FakeClock(), Grants()
    shared = SharedLeases(clock, grants.grant)
    assert [await shared.lease(3600) for _ in range(3)] == [1, 1, 1]
    await clock.advance(61)
    assert await shared.lease(3600) == 2
    assert await shared.lease(20) == 3
    assert grants.seconds == [3660 + LATER_SECONDS, 3660 + LATER_SECONDS, 21 + LATER_SECONDS]


async def test_a_lease_takes_so_many_keys_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MOST_KEYS", 2)
    shared = SharedLeases(FakeClock(), Grants().grant)
    assert [await shared.lease(3600) for _ in range(5)] == [1, 1, 2, 2, 3]


async def test_forgotten_leases_are_not_used_again() -> None:
    shared = SharedLeases(FakeClock(), Grants().grant)
    await shared.lease(3600)
    shared.forget()
    assert await shared.lease(3600) == 2
