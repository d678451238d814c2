"""Why a pod is slow: a table from windows to causes."""

from typing import Any, NamedTuple

import pytest

from kedge.api.core_v1.pod.container import ResourceRequirements
from kedge.api.metrics_v1alpha1 import node
from kedge.api.metrics_v1alpha1.windows import Metrics
from kedge.cli.pods.why.remedy import Remedy
from kedge.cli.pods.why.slow_subject import SlowSubject
from kedge.cli.pods.why.slowness import PodNode, SlowFinding, findings
from kedge.cli.usage.lines import UsageLine
from kedge.machinery.quantity import Quantity

END = "2030-01-02T00:00:00Z"
WINDOWS = ("10s", "1m", "1h", "1d")
IDLE = {"cpu": "100m", "memory": "50Mi"}


def amounts(**given: str) -> dict[str, Quantity]:
    return {name.replace("_", "-"): Quantity.parse(value) for name, value in given.items()}


def windows(used: dict[str, str], **other: dict[str, str]) -> dict[str, Metrics]:
    """The same in all windows, unless one is named, as m1 for 1m."""
    made = {}
    for length in WINDOWS:
        given = {**IDLE, **used, **other.get(f"{length[-1]}{length[:-1]}", {})}
        parsed = {name: Quantity.parse(value) for name, value in given.items()}
        made[length] = Metrics(endtime=END, mean=parsed, max=parsed, ninety_fifth=parsed)
    return made


def subject(
    used: dict[str, str],
    *,
    limits: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    killed: bool = False,
    **other: dict[str, str],
) -> SlowSubject:
    resources = ResourceRequirements(
        limits=amounts(**(limits or {})), requests=amounts(**(requests or {}))
    )
    return SlowSubject("main", windows(used, **other), resources, killed)


def place(cpu: str = "100m", *neighbours: UsageLine, memory: str = "1Gi") -> PodNode:
    """A node of two cores and 4 GiB."""
    used = {"mean": {"cpu": cpu, "memory": memory}, "endtime": END}
    document: Any = {"metadata": {"name": "n1"}, "machine": {"1m": used}}
    return PodNode("n1", node.RESOURCE.from_document(document), 2.0, float(4 << 30), neighbours)


def neighbour(name: str, used: str, asked: str = "") -> UsageLine:
    requests = amounts(cpu=asked) if asked else {}
    return UsageLine("jobs", name, "", amounts(cpu=used), requests, {})


REMEDY = Remedy("shop", "web-0", "deployment/web")


def judged(found: SlowSubject, where: PodNode | None = None) -> list[SlowFinding]:
    return findings([found], where or place(), REMEDY)


class Case(NamedTuple):
    """One row of the table."""

    name: str
    subject: SlowSubject
    node: PodNode
    causes: list[str]


LIMITED = {"cpu": "500m", "memory": "100Mi"}
CASES = [
    Case("idle", subject({}), place(), []),
    Case(
        "throttled now", subject({"cpu-throttled": "620m"}, limits=LIMITED), place(), ["throttled"]
    ),
    Case(
        "throttled during the last hour",
        subject({}, limits=LIMITED, h1={"cpu-throttled": "60m"}),
        place(),
        ["throttled"],
    ),
    Case(
        "throttled yesterday only",
        subject({}, limits=LIMITED, d1={"cpu-throttled": "500m"}),
        place(),
        [],
    ),
    Case("throttled a little", subject({"cpu-throttled": "49m"}, limits=LIMITED), place(), []),
    Case(
        "throttled, which is waiting too",
        subject({"cpu-throttled": "300m", "cpu-pressure-some": "300m"}, limits=LIMITED),
        place(),
        ["throttled"],
    ),
    Case(
        "throttled on a full node",
        subject({"cpu-throttled": "300m", "cpu-pressure-some": "300m"}, limits=LIMITED),
        place("1900m"),
        ["throttled", "starved"],
    ),
    Case("waits for a processor", subject({"cpu-pressure-some": "100m"}), place(), ["starved"]),
    Case("waits rarely", subject({"cpu-pressure-some": "90m"}), place(), []),
    Case(
        "no pressure is measured, the node is full and it wants more than its request",
        subject({"cpu": "800m"}, requests={"cpu": "500m"}),
        place("1900m"),
        ["starved"],
    ),
    Case(
        "the node is full and it gets what it requests",
        subject({"cpu": "300m"}, requests={"cpu": "500m"}),
        place("1900m"),
        [],
    ),
    Case("the node is unknown", subject({"cpu": "800m"}), PodNode("n1"), []),
    Case(
        "near its memory limit",
        subject({"memory": "90Mi"}, limits=LIMITED),
        place(),
        ["memory-limit"],
    ),
    Case("below its memory limit", subject({"memory": "89Mi"}, limits=LIMITED), place(), []),
    Case("much memory without a limit", subject({"memory": "3Gi"}), place(), []),
    Case(
        "waits for memory", subject({"memory-pressure-some": "200m"}), place(), ["memory-pressure"]
    ),
    Case("reads pages again", subject({"major-page-faults": "50"}), place(), ["memory-pressure"]),
    Case(
        "waits for memory at its limit",
        subject({"memory": "99Mi", "memory-pressure-some": "200m"}, limits=LIMITED),
        place(),
        ["memory-limit", "memory-pressure"],
    ),
    Case("killed today", subject({}, d1={"oom-kills": "12u"}), place(), ["oom-killed"]),
    Case(
        "killed at its memory limit",
        subject({"memory": "100Mi"}, limits=LIMITED, killed=True),
        place(),
        ["oom-killed"],
    ),
    Case("its last run was killed", subject({}, killed=True), place(), ["oom-killed"]),
    Case("waits for a disk", subject({"io-pressure-some": "400m"}), place(), ["disk"]),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_windows_have_causes(case: Case) -> None:
    assert [each.cause for each in judged(case.subject, case.node)] == case.causes


def test_a_throttled_container_is_given_a_higher_limit() -> None:
    (found,) = judged(subject({"cpu": "500m", "cpu-throttled": "620m"}, limits=LIMITED))
    assert found.summary == "container main is throttled: its cpu limit holds it back"
    assert found.evidence == (
        "throttled in 62% (1m) and 62% (1h) of the periods",
        "used 0.50 cores in the last minute, 0.50 at most in an hour",
        "cpu request none, limit 500m",
    )
    assert found.command == (
        "kubectl -n shop set resources deployment/web -c main --limits=cpu=1 --requests=cpu=1"
    )


def test_the_neighbours_that_exceed_their_requests_are_named() -> None:
    busy = place(
        "2",
        neighbour("small", "50m"),
        neighbour("fair", "700m", "1"),
        neighbour("greedy", "900m", "100m"),
        neighbour("worse", "1100m"),
    )
    (found,) = judged(subject({"cpu": "100m", "cpu-pressure-some": "800m"}), busy)
    assert found.summary == (
        "container main is starved by jobs/worse: its processes wait for a processor of n1"
    )
    assert found.evidence == (
        "waited for a processor in 80% (1m) and 80% (1h) of the time",
        "used 0.10 cores in the last minute, 0.10 at most in an hour",
        "cpu request none, limit none",
        "n1 used 100% of its cpu in the last minute",
        "neighbour jobs/worse used 1.10 cores, cpu request none",
        "neighbour jobs/greedy used 0.90 cores, cpu request 100m",
    )
    assert found.command == (
        "kubectl -n shop set resources deployment/web -c main --requests=cpu=125m"
    )


def test_a_pod_that_has_its_request_is_moved() -> None:
    (found,) = judged(subject({"cpu-pressure-some": "500m"}, requests={"cpu": "1"}))
    assert found.command == "kedge top n1 -o wide"


def test_kills_of_the_day_are_counted() -> None:
    (found,) = judged(subject({"memory": "10Mi"}, limits=LIMITED, d1={"oom-kills": "35u"}))
    assert found.evidence == (
        "3 processes killed in the last day",
        "used 10 MiB at most in an hour, 10% of the limit 100Mi",
    )
    assert found.command.endswith("--limits=memory=150Mi --requests=memory=150Mi")


def test_memory_of_the_node_is_shown_if_the_limit_is_far() -> None:
    (found,) = judged(subject({"memory-pressure-some": "500m"}), place(memory="3Gi"))
    assert found.summary == "container main waits for memory: n1 has too little"
    assert found.evidence[-1] == "n1 used 75% of its memory in the last minute"
    assert found.command == "kedge top n1 --sort-by memory -o wide"


def test_a_disk_is_shown_with_its_rates() -> None:
    (found,) = judged(subject({"io-pressure-some": "400m", "disk-write": "3M"}))
    assert found.evidence == (
        "waited for a disk in 40% (1m) and 40% (1h) of the time",
        "wrote 3.0 MB/s in the last minute",
    )
