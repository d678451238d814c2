import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.node.pod.dependencies import ClaimFailure, VolumeFailure
from kedge.node.pod.event_recorder import PodEventRecorder
from kedge.node.pod.runtime_cache import RuntimeCache
from kedge.node.pod.sandbox import SandboxStarter
from kedge.node.pod.step_failures import StepFailures
from kedge.node.pod.timeouts import WorkInterrupted
from kedge.node.pod.waiting import POD_STEP
from kedge.node.runtime.runtime import RuntimeFailure
from kedge.testing.local_server import LocalServer
from kedge.testing.node import LocalNode
from kedge.testing.pods import new_pod

POD = new_pod(metadata={"uid": "u"})


class Bench:
    """A node without an agent."""

    def __init__(self, server: LocalServer, directory: Path) -> None:
        self.node = LocalNode(server, directory)
        self.cache = RuntimeCache(self.node.runtime, self.node.clock, lambda uid: None)
        self.failures = StepFailures(self.node.clock)
        self.forced_stop = asyncio.Event()
        self.starter = SandboxStarter(
            self.node.dependencies(),
            self.cache,
            PodEventRecorder(self.node.events, POD),
            self.failures,
            self.forced_stop,
        )


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with LocalServer.running() as server:
        yield Bench(server, tmp_path)


async def test_a_pod_is_prepared_any_number_of_times(bench: Bench) -> None:
    for _ in range(2):
        assert await bench.starter.prepare(POD) == "/kedge/u"
    assert bench.node.cgroups.there == bench.node.volumes.mounted == bench.node.files.uids()
    assert bench.node.events.told == []


async def test_a_volume_that_is_missing_is_a_failure_of_the_pod(bench: Bench) -> None:
    bench.node.volumes.failures = [VolumeFailure("FailedMount", "no such config map")]
    assert await bench.starter.prepare(POD) is None
    assert bench.failures.by_step[POD_STEP].reason == "FailedMount"
    assert bench.node.events.told == [("Warning", "FailedMount", "no such config map")]


async def test_a_cgroup_that_cannot_be_created_is_a_failure_of_the_pod(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pod: object) -> str:
        raise OSError("read-only")

    monkeypatch.setattr(bench.node.cgroups, "ensure", fail)
    assert await bench.starter.prepare(POD) is None
    assert bench.node.events.told == [
        (
            "Warning",
            "FailedCreatePodContainer",
            "unable to ensure pod container exists: read-only",
        )
    ]


async def test_a_forced_stop_interrupts_mounting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(pod: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(bench.node.volumes, "mount", never)
    preparing = asyncio.ensure_future(bench.starter.prepare(POD))
    await bench.node.settle()
    bench.forced_stop.set()
    with pytest.raises(WorkInterrupted):
        await preparing


async def test_a_sandbox_is_in_the_cache_once_it_exists(bench: Bench) -> None:
    bench.node.runtime.failures["run_sandbox"].append(RuntimeFailure("no space"))
    await bench.starter.start(POD, 0, "/kedge/u")
    assert bench.cache.of("u").sandbox is None
    message = bench.failures.by_step[POD_STEP].message
    assert message == "Failed to create pod sandbox: no space"

    await bench.starter.start(POD, 0, "/kedge/u")
    assert bench.cache.of("u").ready_sandbox is not None
    assert bench.failures.by_step == {}
    bench.starter.record_change()
    assert bench.node.events.reasons() == ["FailedCreatePodSandBox", "SandboxChanged"]


async def test_a_pod_without_a_cluster_dns_server_says_so(bench: Bench) -> None:
    bench.node.dns_address = ""
    await bench.starter.start(POD, 0, "/kedge/u")
    assert bench.node.events.told == [
        (
            "Warning",
            "MissingClusterDNS",
            'The cluster has no DNS server for the policy "ClusterFirst". Falling back to "Default"'
            " policy.",
        )
    ]


async def test_a_pod_without_a_network_of_its_own_uses_the_machines_dns(bench: Bench) -> None:
    bench.node.dns_address = None
    await bench.starter.start(POD, 0, "/kedge/u")
    assert bench.node.events.told == []


async def test_a_pod_with_too_many_nameservers_says_so(bench: Bench) -> None:
    servers = [f"192.0.2.{each}" for each in range(1, 5)]
    spec = {"dnsPolicy": "None", "dnsConfig": {"nameservers": servers}}
    pod = new_pod(metadata={"uid": "u"}, spec={"containers": [{"name": "c", "image": "i"}], **spec})
    await bench.starter.start(pod, 0, "/kedge/u")
    assert bench.node.events.reasons() == ["DNSConfigForming"]
    [created] = bench.node.runtime.sandbox_specs.values()
    assert created.dns.servers == servers[:3]


CLAIMING = new_pod(
    metadata={"uid": "u"}, spec={"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
)


async def test_claims_are_prepared_before_the_sandbox_is_created(bench: Bench) -> None:
    bench.node.claims.failures = [ClaimFailure("prepare dynamic resources: no driver")]
    await bench.starter.start(CLAIMING, 0, "")
    assert bench.cache.of("u").sandbox is None
    reason = "FailedPrepareDynamicResources"
    assert bench.failures.by_step[POD_STEP].reason == reason
    text = "Failed to prepare dynamic resources: prepare dynamic resources: no driver"
    assert bench.node.events.told == [("Warning", reason, text)]
    await bench.starter.start(CLAIMING, 0, "")
    assert bench.node.claims.prepared == {"u"}
    assert bench.cache.of("u").ready_sandbox is not None
    assert POD_STEP not in bench.failures.by_step
