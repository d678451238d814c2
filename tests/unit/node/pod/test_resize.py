from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.pod.event_recorder import PodEventRecorder
from kedge.node.pod.resize import ContainerResizer
from kedge.node.pod.resources import AllocatedResources
from kedge.node.pod.runtime_cache import PodRuntimeState, RuntimeCache
from kedge.node.pod.step_failures import StepFailures
from kedge.node.pod.waiting import RESIZE_STEP
from kedge.node.runtime.runtime import ContainerConfig, RuntimeFailure, SandboxConfig
from kedge.testing.local_server import LocalServer
from kedge.testing.node import LocalNode
from kedge.testing.pods import new_pod

NOW = "2030-01-01T00:00:00Z"


def sized(cpu: str) -> Pod:
    resources = {"limits": {"cpu": cpu}, "requests": {"cpu": cpu}}
    return new_pod(metadata={"uid": "u"}, container={"resources": resources})


class Bench:
    """A pod with a cpu limit of 2 whose container `ctr` runs."""

    def __init__(self, server: LocalServer, directory: Path) -> None:
        self.node = LocalNode(server, directory)
        self.order: list[str] = []
        self.resources = AllocatedResources(sized("2"), directory / "resize.json")
        self.failures = StepFailures(self.node.clock)
        recorder = PodEventRecorder(self.node.events, sized("2"))
        self.resizer = ContainerResizer(
            self.node.dependencies(), recorder, self.failures, self.resources
        )

    async def observed(self) -> PodRuntimeState:
        runtime = self.node.runtime
        sandbox = await runtime.run_sandbox(SandboxConfig(namespace="n", name="p", uid="u"))
        spec = ContainerConfig(name="ctr", image="i")
        await runtime.start_container(await runtime.create_container(sandbox.id, spec))
        cache = RuntimeCache(runtime, self.node.clock, lambda uid: None)
        await cache.relist()
        return cache.of("u")

    def watch_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def container(*_: object) -> None:
            self.order.append("container")

        monkeypatch.setattr(self.node.cgroups, "update", lambda pod: self.order.append("pod"))
        monkeypatch.setattr(self.node.runtime, "update_container", container)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with LocalServer.running() as server:
        yield Bench(server, tmp_path)


@pytest.mark.parametrize(
    ("cpu", "order"), [("4", ["pod", "container"]), ("1", ["container", "pod"])]
)
async def test_the_limit_of_the_pod_is_never_below_those_of_its_containers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, cpu: str, order: list[str]
) -> None:
    observed = await bench.observed()
    bench.resources.record_resize(sized("2").spec.containers[0])
    bench.watch_order(monkeypatch)
    await bench.resizer.resize(sized(cpu), observed, ["ctr", "unknown"])
    assert bench.order == order
    assert str(bench.resources.actuated["ctr"].limits["cpu"]) == cpu


async def test_a_resize_that_fails_is_retried_and_completed_later(bench: Bench) -> None:
    pod, observed = sized("4"), await bench.observed()
    bench.resources.allocate(pod, NOW)
    bench.node.runtime.failures["update_container"].append(RuntimeFailure("busy"))
    await bench.resizer.resize(pod, observed, ["ctr"])
    bench.resizer.finish(pod)
    assert bench.node.events.reasons() == ["ResizeError"]
    assert bench.failures.by_step[RESIZE_STEP].message == "busy"
    (condition,) = bench.resources.conditions
    assert (condition.reason, condition.message) == ("Error", "busy")

    await bench.resizer.resize(pod, observed, ["ctr"])
    bench.resizer.finish(pod)
    bench.resizer.finish(pod)
    assert bench.node.events.reasons() == ["ResizeError", "ResizeCompleted"]
    assert bench.resources.conditions == []
