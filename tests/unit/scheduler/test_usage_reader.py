import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from kedge.client.client import Client
from kedge.client.transport import Call, LocalTransport
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.load import CpuAndMemory
from kedge.scheduler.queue import SchedulingQueue
from kedge.scheduler.receivers import NodeReportReceiver, PodReceiver
from kedge.scheduler.usage import NodeReport, PodReport
from kedge.scheduler.usage_reader import PACE, PodUsageReader
from kedge.testing.clock import FakeClock
from kedge.testing.scheduling import cluster, demand, new_node, pod_report
from kedge.web.message import Response

SINCE = "2030-01-01T00:00:00Z"


class Cluster:
    """A snapshot, and a server that lists what the pods of a node are said to use."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.snapshot = cluster(new_node("a"), new_node("b"))
        self.listed: dict[str, list[PodReport]] = {"a": [], "b": []}
        self.reads: list[str] = []
        self.broken = False
        client = Client(LocalTransport(self._answer))
        self.rounds = PodUsageReader(client, self.snapshot, self.clock)
        self.nodes = NodeReportReceiver(self.snapshot, self.rounds)

    def _answer(self, call: Call) -> Response:
        if self.broken:
            return Response(500)
        query = parse_qs(call.query)
        [selector] = query["fieldSelector"]
        # Details are most of the JSON, and the scheduler uses none of them.
        assert query["details"] == ["false"]
        name = selector.removeprefix("spec.nodeName=")
        self.reads.append(name)
        found = {"metadata": {"resourceVersion": "1"}, "items": self.listed[name]}
        return Response(200, msgspec.json.encode(found))

    def place(self, name: str, node: str = "a") -> PodDemand:
        made = demand(name)
        self.snapshot.place(made, node)
        return made

    async def report(self, *names: str, after: float = 0.0) -> list[str]:
        """Nodes report; returns whose pods are read then, if none has to wait."""
        await self.clock.advance(after)
        self.reads.clear()
        for name in names:
            self.nodes.put(node_report(name))
        await self.clock.advance(0)
        return [*self.reads]

    def known(self, node: str = "a") -> int:
        return self.snapshot.usage.load(self.snapshot.nodes[node]).known


@pytest.fixture
async def made() -> AsyncIterator[Cluster]:
    made = Cluster()
    task = asyncio.get_running_loop().create_task(made.rounds.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def node_report(name: str) -> NodeReport:
    amounts = {"cpu": "1", "memory": "1Mi"}
    windows = {"1m": {"95th": amounts}, "10s": {"max": amounts}}
    return msgspec.convert({"metadata": {"name": name}, "machine": windows}, NodeReport)


def young(uid: str) -> PodReport:
    """Of a pod that has been measured for less than a minute."""
    used = {"cpu": "1m", "memory": "1Mi"}
    amounts: Any = {"mean": used, "95th": used, "max": used}
    windows = dict.fromkeys(("1m", "1h", "1d"), amounts | {"starttime": SINCE})
    document = {"metadata": {"uid": uid}, "containers": [{"metrics": windows}]}
    return msgspec.convert(document, PodReport)


def old(uid: str) -> PodReport:
    return pod_report(uid, "900m", "1Mi")


async def test_pods_that_are_known_are_read_once_a_minute(made: Cluster) -> None:
    uids = [made.place(f"p{n}").uid for n in range(3)]
    made.listed["a"] = [old(uid) for uid in uids]
    assert await made.report("a") == ["a"]
    assert made.known() == 3
    reads = [await made.report("a", after=10) for _ in range(12)]
    assert [n for n, each in enumerate(reads, 1) if each] == [6, 12]


async def test_a_new_pod_is_read_with_each_report_until_its_first_minute_is_over(
    made: Cluster,
) -> None:
    here = made.place("here").uid
    made.listed["a"] = [old(here)]
    await made.report("a")
    new = made.place("new").uid
    made.listed["a"] = [old(here), young(new)]
    for _ in range(3):
        # A little early: no report may be missed for that.
        assert await made.report("a", after=9.9) == ["a"]
        assert made.known() == 2
        made.place("another")
    made.listed["a"] = [old(here), old(new)]
    assert await made.report("a", after=10) == ["a"]
    measured = made.snapshot.usage.pod(new)
    assert measured is not None
    assert measured.minute


async def test_pods_that_never_start_are_not_asked_for_with_every_report(made: Cluster) -> None:
    made.place("stuck")
    reads = [await made.report("a", after=10) for _ in range(30)]
    times = [n for n, each in enumerate(reads) if each]
    assert times[0] == 0
    assert [b - a for a, b in pairwise(times)][-2:] == [6, 6]


async def test_what_is_no_longer_listed_is_forgotten(made: Cluster) -> None:
    pod = made.place("p")
    made.listed["a"] = [old(pod.uid)]
    await made.report("a")
    assert made.known() == 1
    made.listed["a"] = []
    await made.report("a", after=60)
    assert made.known() == 0
    assert made.snapshot.usage.pod(pod.uid) is None


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_with_a_silent_node_its_pods_are_forgotten(made: Cluster, how: str) -> None:
    pod = made.place("p")
    made.listed["a"] = [old(pod.uid)]
    await made.report("a", "b")
    if how == "removed":
        made.nodes.remove(node_report("a"))
    else:
        made.nodes.replace([node_report("b")])
    assert made.known() == 0
    assert made.snapshot.usage.nodes() == ["b"]
    assert await made.report("a", after=10) == ["a"]
    assert made.known() == 1


async def test_of_a_pod_that_is_gone_nothing_is_known_at_once(made: Cluster) -> None:
    pod = made.place("p")
    made.listed["a"] = [old(pod.uid)]
    await made.report("a")
    PodReceiver(made.snapshot, SchedulingQueue(made.clock), "default-scheduler").remove(pod.pod)
    assert made.snapshot.usage.pod(pod.uid) is None


async def test_many_pods_are_read_one_node_after_the_other_and_not_at_once(made: Cluster) -> None:
    for name in ("a", "b"):
        made.listed[name] = [old(f"{name}{n}") for n in range(PACE)]
    assert await made.report("a", "b") == ["a"]
    await made.clock.advance(0.9)
    assert made.reads == ["a"]
    await made.clock.advance(0.2)
    assert made.reads == ["a", "b"]


async def test_what_could_not_be_read_is_read_with_the_next_report(made: Cluster) -> None:
    pod = made.place("p")
    made.listed["a"] = [old(pod.uid)]
    made.broken = True
    assert await made.report("a") == []
    made.broken = False
    assert await made.report("a", after=10) == ["a"]
    assert made.known() == 1


async def test_a_node_that_says_too_little_is_not_measured_but_its_pods_are(made: Cluster) -> None:
    pod = made.place("p")
    made.listed["a"] = [old(pod.uid)]
    await made.report("a")
    assert made.snapshot.usage.node("a") == CpuAndMemory(1000, 1 << 20)
    made.nodes.put(NodeReport(metadata=node_report("a").metadata))
    assert made.snapshot.usage.node("a") is None
    assert made.known() == 1


async def test_uids_are_those_that_the_snapshot_keeps(made: Cluster) -> None:
    placed = made.place("web")
    made.listed["a"] = [pod_report(bytes(placed.uid, "ascii").decode(), "1", "1Mi")]
    await made.report("a")
    (kept,) = made.rounds._rounds["a"].uids
    assert kept is placed.uid
