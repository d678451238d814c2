"""New pods wait for their rules."""

import asyncio
from ipaddress import IPv4Address

import pytest

from kedge.node.network import attached_pods
from kedge.node.network.attached_pods import AttachedPod, AttachedPods
from kedge.testing.clock import FakeClock

ONE, TWO = IPv4Address("10.244.0.2"), IPv4Address("10.244.0.3")
POD = AttachedPod("default", "web", {})


async def test_a_pod_waits_until_it_is_confirmed() -> None:
    pods = AttachedPods()
    pods.listen(lambda address, pod: True)
    clock = FakeClock()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pods.admit(ONE, POD))
        await clock.advance(1)
        assert pods.waiting() == {ONE: POD}
        pods.confirm([ONE, TWO])
    assert pods.waiting() == {}


async def test_without_a_listener_nothing_waits() -> None:
    await AttachedPods().admit(ONE, POD)


async def test_a_pod_that_is_never_confirmed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_pods, "ADMIT_SECONDS", 0)
    pods = AttachedPods()
    pods.listen(lambda address, pod: True)
    with pytest.raises(TimeoutError):
        await pods.admit(ONE, POD)
    assert pods.waiting() == {}


def test_the_new_address_of_a_pod_outlives_its_old_one() -> None:
    pods = AttachedPods()
    pods.adopt(ONE, POD)
    pods.adopt(TWO, POD)
    pods.release(ONE)
    pods.release(ONE)
    assert pods.address_of("default", "web") == TWO
