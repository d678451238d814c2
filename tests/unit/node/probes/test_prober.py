from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.probes.prober import Prober, targets
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ExecResult,
    RuntimeContainer,
    RuntimeFailure,
    SandboxConfig,
)
from kedge.testing.clock import FakeClock
from kedge.testing.pods import new_pod
from kedge.testing.runtime import FakeRuntime


class Bench:
    """A prober and one running container."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.runtime = FakeRuntime(self.clock)
        self.told: list[tuple[str, ...]] = []
        self.changes = 0
        self.prober = Prober(
            self.runtime,
            self.clock,
            ip=lambda: "127.0.0.1",
            record=lambda *event: self.told.append(event),
            changed=self._changed,
        )
        self.pod: Pod
        self.record: RuntimeContainer

    def _changed(self) -> None:
        self.changes += 1
        self.watch()

    async def run(self, **probes: Any) -> None:
        self.pod = new_pod(container=probes)
        sandbox = await self.runtime.run_sandbox(SandboxConfig(namespace="n", name="p", uid="u"))
        spec = ContainerConfig(name="ctr", image="i")
        identity = await self.runtime.create_container(sandbox.id, spec)
        await self.runtime.start_container(identity)
        self.record = self.runtime.newest("ctr")
        self.watch()

    def watch(self, *, ending: bool = False) -> None:
        self.prober.watch(targets(self.pod, [self.record]), ending=ending)

    def answer(self, command: str, exit_code: int) -> None:
        self.runtime.commands[command,] = ExecResult(exit_code=exit_code, stdout=b"out")

    def times(self, command: str) -> int:
        return self.runtime.executed.count(("ctr", (command,)))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.prober.close()


def probe(command: str, **fields: Any) -> dict[str, Any]:
    return {"exec": {"command": [command]}, "periodSeconds": 10, **fields}


async def test_a_probe_waits_for_its_delay_and_then_keeps_its_pace(bench: Bench) -> None:
    await bench.run(livenessProbe=probe("live", initialDelaySeconds=7))
    await bench.clock.advance(6.9)
    assert bench.times("live") == 0
    await bench.clock.advance(0.2)
    assert bench.times("live") == 1
    await bench.clock.advance(20)
    assert bench.times("live") == 3


async def test_failures_count_in_a_row(bench: Bench) -> None:
    bench.answer("live", 1)
    await bench.run(livenessProbe=probe("live", failureThreshold=3))
    await bench.clock.advance(10)
    bench.answer("live", 0)
    await bench.clock.advance(10)
    bench.answer("live", 1)
    await bench.clock.advance(20)
    assert bench.prober.verdicts.liveness.get(bench.record.id) is not False
    await bench.clock.advance(10)
    assert bench.prober.verdicts.liveness[bench.record.id] is False
    assert bench.told[0] == ("ctr", "Warning", "Unhealthy", "Liveness probe failed: out")


async def test_a_container_that_is_found_dead_is_left_alone(bench: Bench) -> None:
    bench.answer("live", 1)
    await bench.run(livenessProbe=probe("live", failureThreshold=1))
    await bench.clock.advance(100)
    assert bench.times("live") == 1


async def test_readiness_may_come_and_go(bench: Bench) -> None:
    await bench.run(readinessProbe=probe("ready", successThreshold=2, failureThreshold=1))
    await bench.clock.advance(5)
    assert bench.record.id not in bench.prober.verdicts.readiness
    await bench.clock.advance(10)
    assert bench.prober.verdicts.readiness[bench.record.id] is True
    bench.answer("ready", 1)
    await bench.clock.advance(10)
    assert bench.prober.verdicts.readiness[bench.record.id] is False


async def test_startup_is_asked_until_it_is_decided(bench: Bench) -> None:
    bench.answer("up", 1)
    await bench.run(startupProbe=probe("up", failureThreshold=5), livenessProbe=probe("live"))
    await bench.clock.advance(20)
    assert bench.times("live") == 0
    bench.answer("up", 0)
    await bench.clock.advance(10)
    assert bench.prober.verdicts.startup[bench.record.id] is True
    asked = bench.times("up")
    await bench.clock.advance(30)
    assert bench.times("up") == asked
    assert bench.times("live") > 0


async def test_a_probe_that_cannot_be_made_changes_nothing(bench: Bench) -> None:
    bench.runtime.commands["live",] = RuntimeFailure("no such file")
    await bench.run(livenessProbe=probe("live", failureThreshold=1))
    await bench.clock.advance(1)
    assert bench.times("live") == 3, "it is tried three times"
    assert bench.prober.verdicts.liveness == {}
    assert bench.told == [
        (
            "ctr",
            "Warning",
            "Unhealthy",
            "Liveness probe errored and resulted in unknown state: no such file",
        )
    ]


async def test_of_a_pod_that_ends_only_readiness_is_asked(bench: Bench) -> None:
    await bench.run(livenessProbe=probe("live"), readinessProbe=probe("ready"))
    await bench.clock.advance(1)
    bench.watch(ending=True)
    await bench.clock.advance(30)
    assert bench.times("live") == 1
    assert bench.times("ready") == 4
