"""Webhooks that hang or fail on purpose."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kedge.api.testing.fault_rule import FaultRule
from kedge.apiserver.testing.fault_table import FaultTable
from kedge.apiserver.testing.faulty_caller import FaultyCaller
from kedge.apiserver.webhooks.caller import Caller, CallFailed
from kedge.apiserver.webhooks.configuration import WebhookEndpoint
from kedge.testing.clock import FakeClock
from kedge.web.cluster_network import MACHINE

HOOK = WebhookEndpoint(url="https://hooks.example/check")


@pytest.fixture
def faults() -> FaultTable:
    return FaultTable()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def caller(
    faults: FaultTable, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FaultyCaller]:
    async def good(*arguments: object) -> tuple[int, bytes]:
        return 200, b"fine"

    monkeypatch.setattr(Caller, "_exchange", good)
    made = FaultyCaller(lambda *where: ("127.0.0.1", 1), MACHINE, faults, clock)
    yield made
    await made.close()


async def call(caller: FaultyCaller, seconds: int = 60) -> bytes:
    async with caller.answered(HOOK, b"{}", seconds) as answer:
        return answer


async def test_webhooks_without_a_rule_are_called(caller: FaultyCaller, faults: FaultTable) -> None:
    faults.add(FaultRule(verbs=("call",), name="other", code=500))
    faults.add(FaultRule(verbs=("get",), code=500))
    assert await call(caller) == b"fine"


async def test_a_webhook_that_fails(caller: FaultyCaller, faults: FaultTable) -> None:
    faults.add(FaultRule(verbs=("call",), name="hooks.example", code=403, message="no", times=1))
    with pytest.raises(CallFailed, match="failed to call webhook: no"):
        await call(caller)
    assert await call(caller) == b"fine"


async def test_a_webhook_that_cannot_be_reached(caller: FaultyCaller, faults: FaultTable) -> None:
    for stage in ("before", "after"):
        faults.add(FaultRule(resource="webhooks", drop=True, stage=stage, times=1))
        with pytest.raises(CallFailed, match="closed the connection"):
            await call(caller)


async def test_a_webhook_that_hangs(caller: FaultyCaller, faults: FaultTable) -> None:
    faults.add(FaultRule(verbs=("call",), latency=300))
    # The clock stands still, so that the real time of the server is up first.
    with pytest.raises(CallFailed, match="context deadline exceeded"):
        await call(caller, seconds=0)


async def test_a_webhook_that_is_slow(
    caller: FaultyCaller, faults: FaultTable, clock: FakeClock
) -> None:
    faults.add(FaultRule(verbs=("call",), latency=2))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(call(caller))
        await clock.advance(1)
        assert not waiting.done()
        await clock.advance(1)
    assert waiting.result() == b"fine"
