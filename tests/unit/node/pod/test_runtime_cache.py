import asyncio
from collections.abc import AsyncIterator

import pytest

from kedge.machinery.travel_clock import TravelClock
from kedge.node.pod.runtime_cache import (
    EMPTY,
    ClusterTimes,
    PodRuntimeState,
    RuntimeCache,
    pod_runtime_state,
)
from kedge.node.runtime.runtime import (
    ContainerConfig,
    PodSandbox,
    RunState,
    RuntimeContainer,
    SandboxConfig,
)
from kedge.testing.clock import FakeClock
from kedge.testing.runtime import FakeRuntime


def test_the_newest_comes_first() -> None:
    old = PodSandbox(id="s0", namespace="n", name="p", uid="u", ready=False)
    new = PodSandbox(id="s1", namespace="n", name="p", uid="u", attempt=1)
    first = RuntimeContainer(id="a0", sandbox="s0", name="a", state=RunState.EXITED)
    second = RuntimeContainer(id="a1", sandbox="s0", name="a", attempt=1, state=RunState.EXITED)
    seen = pod_runtime_state([old, new], [first, second])
    assert seen.sandbox == new
    assert seen.newest("a") == second
    assert seen.current("a") is None, "it is of the old sandbox"
    assert EMPTY.sandbox is None


async def test_a_crash_before_a_skipped_hour_was_an_hour_ago() -> None:
    machine = FakeClock()
    clock, start = TravelClock(machine), int(machine.now().timestamp())
    await machine.advance(10)
    clock.advance(3600)
    await machine.advance(10)
    record = RuntimeContainer(
        id="c",
        sandbox="s",
        name="main",
        state=RunState.EXITED,
        created_at=(start + 1) * 10**9,
        started_at=(start + 2) * 10**9,
        finished_at=(start + 15) * 10**9,
    )
    sandbox = PodSandbox(id="s", namespace="n", name="p", uid="u", created_at=start * 10**9)
    observed = PodRuntimeState((sandbox,), (record,))
    times = ClusterTimes(clock)
    shown = times.of(observed)
    (shown_record,) = shown.containers
    moments = shown_record.created_at, shown_record.started_at, shown_record.finished_at
    assert [at // 10**9 - start for at in moments] == [1, 2, 3615]
    assert shown.sandboxes == (sandbox,)
    assert times.of(observed) is shown
    assert ClusterTimes(machine).of(observed) is observed


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.runtime = FakeRuntime(self.clock)
        self.changed: list[str] = []
        self.seen = RuntimeCache(self.runtime, self.clock, self.changed.append)
        self.task = asyncio.ensure_future(self.seen.run())

    async def container(self, name: str = "a") -> str:
        sandbox = await self.runtime.run_sandbox(SandboxConfig(namespace="n", name="p", uid="u"))
        spec = ContainerConfig(name=name, image="i")
        identity = await self.runtime.create_container(sandbox.id, spec)
        await self.runtime.start_container(identity)
        await self.clock.advance(0)
        return identity


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.clock.advance(0)
    yield made
    made.task.cancel()


async def test_what_happens_is_seen_without_asking(bench: Bench) -> None:
    await bench.container()
    assert [c.name for c in bench.seen.of("u").running] == ["a"]
    bench.changed.clear()
    bench.runtime.end("a", 3)
    await bench.clock.advance(0)
    newest = bench.seen.of("u").newest("a")
    assert newest is not None
    assert newest.exit_code == 3
    assert bench.changed == ["u"]
    await bench.runtime.remove_container(newest.id)
    await bench.clock.advance(0)
    assert bench.seen.of("u").containers == ()


async def test_a_start_that_its_worker_has_read_is_not_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = await bench.container()
    read: list[str] = []
    container = bench.runtime.container

    async def noted(wanted: str) -> RuntimeContainer:
        read.append(wanted)
        return await container(wanted)

    monkeypatch.setattr(bench.runtime, "container", noted)
    sandbox = await bench.runtime.run_sandbox(SandboxConfig(namespace="n", name="q", uid="v"))
    bench.seen.put_sandbox(sandbox)
    other = await bench.runtime.create_container(sandbox.id, ContainerConfig(name="b", image="i"))
    await bench.runtime.start_container(other)
    await bench.seen.refresh(other)
    await bench.clock.advance(0)
    assert read == [other]
    bench.runtime.end("b", 0)
    await bench.clock.advance(0)
    assert read == [other, other]
    assert identity != other


async def test_a_lost_connection_is_made_up_for(bench: Bench) -> None:
    await bench.container()
    bench.changed.clear()
    bench.runtime.lose_everything()
    await bench.clock.advance(2)
    assert bench.seen.of("u").ready_sandbox is None
    assert bench.seen.of("u").running == ()
    assert "u" in bench.changed
    bench.changed.clear()
    await bench.runtime.remove_sandbox("sandbox-1")
    bench.runtime.disconnect()
    await bench.clock.advance(2)
    assert bench.seen.uids() == set()


async def test_what_one_has_done_oneself_is_known_at_once(bench: Bench) -> None:
    identity = await bench.container()
    bench.seen.mark_sandbox_stopped("sandbox-1")
    assert bench.seen.of("u").ready_sandbox is None
    bench.seen.remove_container(identity)
    assert bench.seen.of("u").containers == ()
    bench.seen.remove_sandbox("sandbox-1")
    assert bench.seen.of("u") == EMPTY
    assert await bench.seen.refresh("gone") is None


async def test_what_is_put_while_everything_is_asked_for_is_not_lost() -> None:
    """A pod began while the lists were on their way, the first of which does not know it yet."""
    clock = FakeClock()
    runtime = SlowRuntime(clock)
    seen = RuntimeCache(runtime, clock, lambda _: None)
    asking = asyncio.ensure_future(seen.relist())
    await runtime.asked.wait()
    made = await runtime.run_sandbox(SandboxConfig(namespace="n", name="p", uid="u"))
    seen.put_sandbox(made)
    runtime.go_on.set()
    await asking
    assert seen.of("u").ready_sandbox == made


class SlowRuntime(FakeRuntime):
    """Takes its time between the list of sandboxes and that of containers."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def containers(self) -> list[RuntimeContainer]:
        self.asked.set()
        await self.go_on.wait()
        return await super().containers()
