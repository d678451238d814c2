import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kedge.apiserver.quota.upkeep import RETRY_SECONDS, UPKEEP_SECONDS, QuotaUpkeep
from kedge.storage.store import StoreUnavailable
from kedge.testing.clock import FakeClock


class Looks:
    """The looks at namespaces, the first of which may fail."""

    def __init__(self, failures: int = 0, error: type[Exception] = StoreUnavailable) -> None:
        self.clock = FakeClock()
        self.upkeep = QuotaUpkeep(self._look, self.clock, after_seconds=UPKEEP_SECONDS)
        self.seen: list[str] = []
        self._failures = failures
        self._error = error

    async def _look(self, namespace: str) -> None:
        self.seen.append(namespace)
        if len(self.seen) <= self._failures:
            raise self._error("away")


@contextmanager
def running(looks: Looks) -> Iterator[None]:
    task = asyncio.get_running_loop().create_task(looks.upkeep.run())
    yield
    task.cancel()


async def test_many_requests_are_one_look() -> None:
    looks = Looks()
    with running(looks):
        looks.upkeep.add("a")
        looks.upkeep.add("a")
        await looks.clock.advance(UPKEEP_SECONDS / 2)
        looks.upkeep.add("b")
        assert looks.seen == []
        await looks.clock.advance(UPKEEP_SECONDS)
        assert sorted(looks.seen) == ["a", "b"]
        await looks.clock.advance(60)
        assert len(looks.seen) == 2


async def test_a_look_that_fails_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(failures=1)
    with running(looks):
        looks.upkeep.add("a")
        await looks.clock.advance(UPKEEP_SECONDS)
        assert "quotas not brought up namespace=a error=away" in caplog.text
        await looks.clock.advance(RETRY_SECONDS)
        assert looks.seen == ["a", "a"]


async def test_an_object_that_nothing_can_read_does_not_end_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = Looks(failures=1, error=ValueError)
    with running(looks):
        looks.upkeep.add("hostile")
        await looks.clock.advance(UPKEEP_SECONDS)
        assert "quotas skipped namespace=hostile" in caplog.text
        looks.upkeep.add("b")
        await looks.clock.advance(UPKEEP_SECONDS)
        assert looks.seen == ["hostile", "b"]
