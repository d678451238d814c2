from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodStatus
from kedge.node.pod import labels
from kedge.node.pod.admission import PodRejection
from kedge.node.pod.plan import PodPlan
from kedge.node.pod.resources import AllocatedResources
from kedge.node.pod.runtime_cache import EMPTY, pod_runtime_state
from kedge.node.pod.status.reporter import StatusReporter
from kedge.node.pod.status.writer import StatusWriter
from kedge.node.pod.worker_state import ApiObjectState, WorkerState
from kedge.node.probes.prober import Prober
from kedge.node.runtime.runtime import PodSandbox, RunState, RuntimeContainer
from kedge.supervisor.machine_capabilities import PLAIN, of_level
from kedge.testing.local_server import LocalServer
from kedge.testing.node import HOST_IP, LocalNode
from kedge.testing.pods import new_pod

POD = new_pod(metadata={"uid": "u"})
STATE = WorkerState()
ENDED = RuntimeContainer(
    id="c",
    sandbox="s",
    name="ctr",
    state=RunState.EXITED,
    annotations=labels.container_annotations(POD, POD.spec.containers[0], "", ""),
)
OBSERVED = pod_runtime_state(
    [PodSandbox(id="s", namespace="default", name="pod", uid="u")], [ENDED]
)


class Written(StatusWriter):
    """Keeps the statuses instead of writing them."""

    def __init__(self) -> None:
        self.statuses: list[tuple[PodStatus, bool]] = []

    def write(self, pod: Pod, status: PodStatus, *, urgent: bool = True) -> None:
        self.statuses.append((status, urgent))


class Bench:
    def __init__(self, server: LocalServer, directory: Path) -> None:
        self.node = LocalNode(server, directory)
        self.writer = Written()
        dependencies = self.node.dependencies()
        prober = Prober(
            dependencies.runtime,
            dependencies.clock,
            ip=lambda: "",
            record=lambda *_: None,
            changed=lambda: None,
        )
        resources = AllocatedResources(POD, directory / "resize.json")
        self.reporter = StatusReporter(POD, dependencies, self.writer, prober, resources)
        self.node.files.make(POD)

    def report(self, state: WorkerState = STATE, pod: Pod = POD, **facts: Any) -> None:
        observed = facts.pop("observed", EMPTY)
        self.reporter.report(pod, state, PodPlan(), observed, urgent=True, **facts)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with LocalServer.running() as server:
        yield Bench(server, tmp_path)


async def test_a_status_is_written_until_the_api_has_it(bench: Bench) -> None:
    bench.report()
    bench.report()
    assert len(bench.writer.statuses) == 2, "the API does not have it yet"
    bench.report(pod=bench.reporter.with_status(POD))
    assert len(bench.writer.statuses) == 2


async def test_nothing_is_written_for_an_object_that_is_gone(bench: Bench) -> None:
    bench.report(WorkerState(api_object=ApiObjectState.REMOVED))
    assert bench.writer.statuses == []
    assert bench.reporter.status.phase == "Pending"


async def test_a_rejected_pod_has_failed(bench: Bench) -> None:
    bench.report(WorkerState(rejection=PodRejection("OutOfcpu", "too much")))
    ((status, _),) = bench.writer.statuses
    assert (status.phase, status.reason) == ("Failed", "OutOfcpu")
    assert status.message == "Pod was rejected: too much"


async def test_a_termination_message_is_read_once_and_removed_with_its_container(
    bench: Bench,
) -> None:
    file = bench.node.files.make_termination_log("u", "ctr", 0)
    file.write_text("first")
    bench.report(observed=OBSERVED)
    file.write_text("second")
    bench.report(observed=OBSERVED)
    for status, _ in bench.writer.statuses:
        terminated = status.containerStatuses[0].state.terminated
        assert terminated is not None
        assert terminated.message == "first"
    bench.reporter.remove_message(POD, OBSERVED, "c")
    assert not file.exists()


async def test_a_pod_on_the_network_of_the_machine_has_its_addresses(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = replace(POD, spec=replace(POD.spec, hostNetwork=True))
    assert bench.reporter.shared_ips(POD) == []
    assert bench.reporter.shared_ips(shared) == [HOST_IP]
    monkeypatch.setattr(bench.node.runtime, "capabilities", of_level(PLAIN))
    assert bench.reporter.shared_ips(POD) == [HOST_IP]
