"""Which mounted volumes are published again, and when."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from tests.unit.node.storage.test_pod_storage import claim_pod

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.volume import Volume
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.storage.mount_records import MountRecord
from kedge.node.storage.pod_storage import PodStorage
from kedge.node.storage.republisher import PERIOD_SECONDS, Republisher
from kedge.testing.clock import FakeClock
from kedge.testing.node import RecordedEvents


class FakeStorage:
    """Volumes of two drivers; one driver wants to publish again."""

    def __init__(self) -> None:
        self.records = [
            record("again.example.com", "u1"),
            record("once.example.com", "u1"),
            record("again.example.com", "gone"),
            record("again.example.com", "u1", path=""),
            record("local.kedge.dev", "u1"),
        ]
        self.published: list[str] = []
        self.error = ""

    async def requires_republish(self, driver: str) -> bool:
        assert driver != "local.kedge.dev"
        return driver == "again.example.com"

    async def republish(self, pod: Pod, volume: Volume) -> None:
        self.published.append(f"{pod.metadata.uid}/{volume.name}")
        if self.error:
            raise VolumeFailure("FailedMount", self.error)


def record(driver: str, uid: str, path: str = "/x") -> MountRecord:
    return MountRecord(uid=uid, volume="v", name="pv", driver=driver, handle="h", path=path)


class Running:
    """A republisher at work."""

    def __init__(self) -> None:
        self.storage, self.events, self.clock = FakeStorage(), RecordedEvents(), FakeClock()
        pods = {"u1": claim_pod()}
        storage: Any = self.storage
        self.republisher = Republisher(cast(PodStorage, storage), pods.get, self.events, self.clock)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    made = Running()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(made.republisher.run())
        yield made
        task.cancel()


async def test_only_mounted_volumes_of_drivers_that_want_it(running: Running) -> None:
    assert running.storage.published == []
    await running.clock.advance(PERIOD_SECONDS)
    assert running.storage.published == ["u1/v"]


async def test_a_failure_is_an_event_and_the_next_period_tries_again(running: Running) -> None:
    running.storage.error = "no"
    await running.clock.advance(PERIOD_SECONDS)
    assert running.events.messages("FailedMount") == ["no"]
    await running.clock.advance(PERIOD_SECONDS)
    assert running.storage.published == ["u1/v", "u1/v"]
