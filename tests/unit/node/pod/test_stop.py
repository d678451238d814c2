import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import ExecAction, Lifecycle, LifecycleHandler
from kedge.node.pod.actions import StopContainer
from kedge.node.pod.event_recorder import PodEventRecorder
from kedge.node.pod.runtime_cache import RuntimeCache
from kedge.node.pod.stop import ContainerStopper
from kedge.node.runtime.runtime import ContainerConfig, ExecResult, RuntimeFailure, SandboxConfig
from kedge.testing.local_server import LocalServer
from kedge.testing.node import LocalNode
from kedge.testing.pods import new_pod
from kedge.testing.runtime import ContainerRun

HOOK = Container(
    name="a",
    lifecycle=Lifecycle(preStop=LifecycleHandler(exec=ExecAction(command=["bye"]))),
)


class Bench:
    """Containers `a` and `b` of one pod, without an agent."""

    def __init__(self, server: LocalServer, directory: Path) -> None:
        self.node = LocalNode(server, directory)
        self.ids: dict[str, str] = {}
        dependencies = self.node.dependencies()
        cache = RuntimeCache(self.node.runtime, self.node.clock, lambda uid: None)
        names = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
        pod = new_pod(metadata={"uid": "u"}, spec={"containers": names})
        recorder = PodEventRecorder(self.node.events, pod)
        self.stopper = ContainerStopper(dependencies, cache, recorder)

    async def run(self, *names: str) -> None:
        runtime = self.node.runtime
        sandbox = await runtime.run_sandbox(SandboxConfig(namespace="n", name="p", uid="u"))
        for name in names:
            spec = ContainerConfig(name=name, image="i")
            self.ids[name] = await runtime.create_container(sandbox.id, spec)
            await runtime.start_container(self.ids[name])

    def stop(
        self, *names: str, grace: float = 30, after: dict[str, Sequence[str]] | None = None
    ) -> "asyncio.Future[None]":
        order = after or {}
        stops = [
            StopContainer(self.ids[n], n, grace, f"Stopping {n}", frozenset(order.get(n, ())))
            for n in names
        ]
        return asyncio.ensure_future(self.stopper.stop(stops, {"a": HOOK}, ()))


@pytest.fixture
async def bench(tmp_path: Path):  # type: ignore[no-untyped-def]
    async with LocalServer.running() as server:
        made = Bench(server, tmp_path)
        yield made
        made.node.runtime.cancel_timers()


async def test_a_container_ends_after_those_that_go_first(bench: Bench) -> None:
    bench.node.runtime.lives = {
        "a": [ContainerRun(obeys_after=5)],
        "b": [ContainerRun(obeys_after=5)],
    }
    await bench.run("a", "b")
    stopping = bench.stop("a", "b", after={"b": ["a"]})
    await bench.node.later(6)
    assert bench.node.runtime.running() == ["b"]
    await bench.node.later(6)
    await stopping
    assert bench.node.runtime.running() == []


async def test_a_container_does_not_wait_longer_than_its_grace_period(bench: Bench) -> None:
    bench.node.runtime.lives = {"a": [ContainerRun(obeys_after=None)]}
    await bench.run("a", "b")
    stopping = bench.stop("a", "b", grace=10, after={"b": ["a"]})
    await bench.node.later(13)
    await stopping
    assert bench.node.runtime.running() == []


async def test_events_and_hooks_are_not_repeated(bench: Bench) -> None:
    bench.node.runtime.commands[("bye",)] = ExecResult(exit_code=1)
    bench.node.runtime.lives = {"a": [ContainerRun(obeys_after=None)]}
    await bench.run("a")
    for _ in range(2):
        stopping = bench.stop("a")
        await bench.node.later(1)
        stopping.cancel()
    assert bench.node.events.reasons() == ["Killing", "FailedPreStopHook"]


async def test_a_failure_to_stop_one_container_does_not_keep_the_others_running(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.run("a", "b")
    stop = bench.node.runtime.stop_container

    async def fails_for_a(container: str, grace: float) -> None:
        if container == bench.ids["a"]:
            raise RuntimeFailure("no")
        await stop(container, grace)

    monkeypatch.setattr(bench.node.runtime, "stop_container", fails_for_a)
    stopping = bench.stop("a", "b", after={"b": ["a"]})
    await bench.node.later(1)
    with pytest.raises(RuntimeFailure):
        await stopping
    assert bench.node.runtime.running() == ["a"]
