"""NodeReadings samples, which only the node tells (point 17): the pages that stock tools read."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kedge.metrics.window_file import WindowFile
from kedge.node.host.machine import MachineInfo
from kedge.node.server import usage
from kedge.node.stats.claim_usage import MeasuredClaim, NoClaims
from kedge.node.stats.meters import SYSTEMS, UsageSources
from kedge.node.stats.readings import NodeReadings
from kedge.node.stats.sampler import Sampler
from kedge.node.stats.window_pages import WindowPages
from kedge.node.storage.volume_driver import VolumeUsage
from kedge.testing.clock import FakeClock
from kedge.testing.measured import NODE, MeasuredMachine, Version, group
from kedge.web.message import HttpRequest

START = 1_893_456_000
MB = 1 << 20
MACHINE = MachineInfo(
    hostname="m", cpus=4, memory=8 << 30, boot_id="b", machine_id="i", kernel="6.18"
)


class OneClaim(NoClaims):
    """The pod web has a claim."""

    claim = MeasuredClaim("default", "data", "uid-data", VolumeUsage(100, 40, 60, 10, 4, -1))

    def all(self) -> list[MeasuredClaim]:
        return [self.claim]

    def of_pod(self, uid: str) -> list[tuple[str, MeasuredClaim]]:
        return [("v", self.claim)] if uid == "uid-web" else []


async def measured(directory: Path, machine: MeasuredMachine) -> NodeReadings:
    """A pod with two containers after two seconds."""
    clock = FakeClock()
    machine.use("/", cpu=90, memory=0)
    store = WindowFile(directory / "usage", "b")
    sampler = Sampler(
        store, machine, UsageSources(machine.cgroups, NODE, list), clock, runtime=lambda: 0
    )
    machine.run("web", "main", "side", began=START)
    machine.use(NODE, cpu=3, memory=8 * MB)
    for second in (1, 2):
        await clock.advance(1)
        machine.use(group("uid-web"), cpu=1.5 * second, memory=7 * MB, inactive=MB)
        machine.use(group("uid-web", "main"), cpu=1.0 * second, memory=4 * MB, inactive=MB)
        machine.use(group("uid-web", "side"), cpu=0.25 * second, memory=2 * MB)
        sampler.take(START + second)
    return NodeReadings(
        sampler,
        machine.cgroups,
        MACHINE,
        node="n1",
        state=directory,
        images=directory,
        claims=OneClaim(),
    )


def pages(raw: NodeReadings) -> WindowPages:
    return WindowPages(raw._sampler, "n1", lambda: "node-uid")


def asked(raw: NodeReadings, path: str, query: str = "") -> str:
    found = usage.answer(HttpRequest("GET", path, query), raw, pages(raw))
    assert found is not None
    assert isinstance(found.body, bytes)
    return found.body.decode()


@pytest.fixture(params=["v1", "v2"])
async def raw(tmp_path: Path, request: pytest.FixtureRequest) -> NodeReadings:
    version: Version = request.param
    return await measured(tmp_path, MeasuredMachine(tmp_path / "cgroup", version))


async def test_the_page_for_autoscalers_has_upstreams_series_and_labels(raw: NodeReadings) -> None:
    page = asked(raw, "/metrics/resource")
    stamp = (START + 2) * 1000
    labels = 'container="main",namespace="shop",pod="web"'
    assert f"container_cpu_usage_seconds_total{{{labels}}} 2.0 {stamp}\n" in page
    assert f"container_memory_working_set_bytes{{{labels}}} {3 * MB} {stamp}\n" in page
    assert f"container_start_time_seconds{{{labels}}} {float(START)}\n" in page
    of_pod = 'namespace="shop",pod="web"'
    assert f"pod_cpu_usage_seconds_total{{{of_pod}}} 3.0 {stamp}\n" in page
    assert f"pod_memory_working_set_bytes{{{of_pod}}} {6 * MB} {stamp}\n" in page
    assert f"node_cpu_usage_seconds_total 90.0 {stamp}\n" in page
    assert "resource_scrape_error 0\n" in page
    kinds = dict(re.findall(r"# TYPE (\S+) (\S+)", page))
    assert kinds["container_cpu_usage_seconds_total"] == "counter"
    assert len(kinds) == 8


async def test_every_line_is_one_that_prometheus_reads(raw: NodeReadings) -> None:
    value = r"-?[0-9.e+-]+"
    line = re.compile(rf'[a-z_]+(\{{([a-zA-Z_]+="[^"]*",?)*\}})? {value}( [0-9]+)?')
    for path in ("/metrics/resource", "/metrics/cadvisor"):
        for each in asked(raw, path).splitlines():
            assert each.startswith("# ") or line.fullmatch(each), each


async def test_the_summary_has_upstreams_shape(raw: NodeReadings) -> None:
    found: Any = msgspec.json.decode(asked(raw, "/stats/summary"))
    node, (pod,) = found["node"], found["pods"]
    assert node["nodeName"] == "n1"
    assert {each["name"] for each in node["systemContainers"]} <= set(SYSTEMS)
    assert node["cpu"]["usageCoreNanoSeconds"] == 90_000_000_000
    assert {"fs", "network", "runtime", "rlimit", "memory", "startTime"} <= node.keys()
    assert pod["podRef"] == {"name": "web", "namespace": "shop", "uid": "uid-web"}
    assert pod["startTime"] == datetime.fromtimestamp(START, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    main = next(each for each in pod["containers"] if each["name"] == "main")
    assert main["cpu"]["usageNanoCores"] == 1_000_000_000
    assert main["cpu"]["usageCoreNanoSeconds"] == 2_000_000_000
    assert main["memory"]["workingSetBytes"] == 3 * MB
    assert main["memory"]["usageBytes"] == 4 * MB
    assert pod["memory"]["workingSetBytes"] == 6 * MB


async def test_the_summary_can_be_brief(raw: NodeReadings) -> None:
    found: Any = msgspec.json.decode(asked(raw, "/stats/summary", "only_cpu_and_memory=true"))
    assert set(found["node"]) == {"nodeName", "startTime", "systemContainers", "cpu", "memory"}
    assert set(found["pods"][0]) == {"podRef", "startTime", "containers", "cpu", "memory"}


async def test_the_large_page_names_groups_of_pods_and_of_containers(raw: NodeReadings) -> None:
    page = asked(raw, "/metrics/cadvisor")
    of_pod = f'container="",id="{group("uid-web")}",image="",name="",namespace="shop",pod="web"'
    assert f'container_cpu_usage_seconds_total{{{of_pod},cpu="total"}} 3.0' in page
    assert f"container_memory_usage_bytes{{{of_pod}}} {7 * MB}" in page
    assert re.search(r'container_last_seen\{container="main".*\} 1893456002 ', page)
    whole = 'container="",id="/",image="",name="",namespace="",pod=""'
    assert f'container_cpu_usage_seconds_total{{{whole},cpu="total"}} 90.0' in page
    assert f"container_memory_working_set_bytes{{{whole}}} " in page
    assert 'machine_cpu_cores{boot_id="b",machine_id="i",system_uuid=""} 4' in page
    for each in ("container_memory_rss", "container_memory_cache", "container_start_time_seconds"):
        assert f"# TYPE {each} gauge" in page


async def test_a_container_that_has_ended_is_not_told_of(
    tmp_path: Path, machine: MeasuredMachine
) -> None:
    raw = await measured(tmp_path, machine)
    machine.run("web", "main!", "side", began=START)
    raw._sampler.take(START + 3)
    assert 'container="main"' not in asked(raw, "/metrics/resource")
    assert 'container="side"' in asked(raw, "/metrics/resource")


async def test_statistics_are_told_only_in_their_own_group(raw: NodeReadings) -> None:
    for path in ("/stats/", "/metrics/probes", "/stats/summary/web"):
        assert usage.answer(HttpRequest("GET", path), raw, pages(raw)) is None
    assert "95th" not in asked(raw, "/stats/summary")


async def test_the_summary_has_the_claims_of_pods(tmp_path: Path, machine: MeasuredMachine) -> None:
    raw = await measured(tmp_path, machine)
    (volume,) = json.loads(asked(raw, "/stats/summary"))["pods"][0]["volume"]
    assert volume.pop("time")
    assert volume == {
        "name": "v",
        "pvcRef": {"name": "data", "namespace": "default"},
        "capacityBytes": 100,
        "usedBytes": 40,
        "availableBytes": 60,
        "inodes": 10,
        "inodesUsed": 4,
    }
    brief = json.loads(asked(raw, "/stats/summary", "only_cpu_and_memory=true"))
    assert "volume" not in brief["pods"][0]


async def test_claims_are_among_the_metrics_of_the_kubelet(
    tmp_path: Path, machine: MeasuredMachine
) -> None:
    page = asked(await measured(tmp_path, machine), "/metrics")
    labels = '{namespace="default",persistentvolumeclaim="data"}'
    assert f"kubelet_volume_stats_used_bytes{labels} 40\n" in page
    assert f"kubelet_volume_stats_capacity_bytes{labels} 100\n" in page
    assert "# TYPE kubelet_volume_stats_inodes_used gauge\n" in page
    assert "inodes_free" not in page
