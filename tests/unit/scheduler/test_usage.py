import msgspec
import pytest

from kedge.scheduler.demand import PodDemand
from kedge.scheduler.load import CpuAndMemory
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import (
    ExpectedUsage,
    NodeReport,
    PodReport,
    PodUsage,
    used_by_node,
    used_by_pod,
)
from kedge.testing.scheduling import cluster, demand, new_node, pod_report

MI = 1 << 20
SINCE = "2030-01-01T00:00:00Z"


def of_owner(name: str, owner: str, **facts: str) -> PodDemand:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}
    return demand(
        name, requests=facts, metadata={"ownerReferences": [reference | {"controller": True}]}
    )


def settled(cpu: int, memory: int = 100 * MI, *, hour: bool = True) -> PodUsage:
    return PodUsage(CpuAndMemory(cpu, memory), CpuAndMemory(cpu, memory), minute=True, hour=hour)


def started(cpu: int) -> PodUsage:
    return PodUsage(CpuAndMemory(cpu, 0), CpuAndMemory(cpu, 0), minute=False, hour=False)


def snapshot() -> Snapshot:
    return cluster(new_node("a"), new_node("b"))


def test_a_pod_is_expected_to_use_what_its_siblings_do() -> None:
    made = snapshot()
    new = of_owner("new", "web", cpu="2")
    assert made.usage.expectation(new).source == "requests"
    made.usage.put_pod("u1", settled(100, 10 * MI), "web")
    made.usage.put_pod("u2", settled(300, 30 * MI), "web")
    made.usage.put_pod("u3", settled(900), "other")
    assert made.usage.expectation(new) == ExpectedUsage(CpuAndMemory(200, 20 * MI), "siblings")
    made.usage.put_pod("u2", settled(500, 30 * MI), "web")
    assert made.usage.expectation(new).amount.cpu == 300
    made.usage.remove_pod("u2")
    assert made.usage.expectation(new).amount.cpu == 100
    made.usage.remove_pod("u1")
    assert made.usage.expectation(new).source == "requests"


def test_the_first_minute_of_a_sibling_says_nothing() -> None:
    made = snapshot()
    made.usage.put_pod("u1", started(1), "web")
    expected = made.usage.expectation(of_owner("new", "web", cpu="2"))
    assert (expected.amount.cpu, expected.source) == (2000, "requests")


def test_a_pod_of_which_nothing_is_known_is_expected_to_use_a_little() -> None:
    assert snapshot().usage.expectation(demand()) == ExpectedUsage(
        CpuAndMemory(100, 200 * MI), "default"
    )


def test_where_pods_are_known_to_use_more_so_is_one_of_which_nothing_is_known() -> None:
    made = snapshot()
    made.usage.put_pod("u1", settled(100), "web")
    made.usage.put_pod("u2", settled(500), "shop")
    assert made.usage.expectation(demand()) == ExpectedUsage(CpuAndMemory(600, 200 * MI), "default")
    assert made.usage.expectation(demand(requests={"cpu": "50m"})).amount.cpu == 50
    new = demand("new")
    made.place(new, "a")
    assert made.usage.load(made.nodes["a"]).expected.cpu == 600
    made.measure_pod(new.uid, settled(30, hour=False))
    load = made.usage.load(made.nodes["a"])
    assert (load.expected.cpu, load.usual.cpu) == (0, 30), "a guess is no longer needed"
    made.usage.remove_pod("u2")
    assert made.usage.expectation(demand()).amount.cpu == 200
    made.usage.remove_pod("u1")
    assert made.usage.expectation(demand()).amount.cpu == 100


def test_a_new_pod_counts_until_a_minute_of_it_was_measured() -> None:
    made = snapshot()
    made.usage.put_node("a", CpuAndMemory(1000, 1000 * MI))
    new = demand("new")
    made.place(new, "a")
    load = made.usage.load(made.nodes["a"])
    assert (load.now, load.expected) == (CpuAndMemory(1000, 1000 * MI), CpuAndMemory(100, 200 * MI))
    made.usage.put_pod(new.uid, started(30), "")
    made.reconsider("a")
    assert made.usage.load(made.nodes["a"]).expected.cpu == 70
    made.usage.put_pod(new.uid, settled(30), "")
    made.reconsider("a")
    load = made.usage.load(made.nodes["a"])
    assert (load.expected, load.pods, load.known) == (CpuAndMemory(0, 0), 1, 1)


def test_history_counts_for_more_or_less_cpu_than_was_asked_for_after_a_minute() -> None:
    made = snapshot()
    greedy, lazy = demand("greedy", requests={"cpu": "100m"}), demand("lazy", requests={"cpu": "2"})
    for each in (greedy, lazy):
        made.place(each, "a")
    assert made.usage.load(made.nodes["a"]).usual.cpu == 100 + 2000
    made.usage.put_pod(greedy.uid, started(900), "")
    made.usage.put_pod(lazy.uid, started(10), "")
    made.reconsider("a")
    assert made.usage.load(made.nodes["a"]).usual.cpu == 900 + 2000
    made.usage.put_pod(lazy.uid, settled(10, hour=False), "")
    made.reconsider("a")
    assert made.usage.load(made.nodes["a"]).usual.cpu == 900 + 10


def test_memory_that_was_asked_for_counts_until_there_is_an_hour_of_history() -> None:
    made = snapshot()
    pod = demand("p", requests={"memory": "500Mi"})
    made.place(pod, "a")
    made.usage.put_pod(pod.uid, settled(10, 20 * MI, hour=False), "")
    assert made.usage.load(made.nodes["a"]).usual.memory == 500 * MI
    made.usage.put_pod(pod.uid, settled(10, 20 * MI), "")
    made.reconsider("a")
    assert made.usage.load(made.nodes["a"]).usual.memory == 20 * MI


def test_a_node_uses_what_its_pods_do_not_use_for_something_else() -> None:
    made = snapshot()
    pod = demand("p")
    made.place(pod, "a")
    made.measure_pod(pod.uid, PodUsage(CpuAndMemory(700, MI), CpuAndMemory(200, MI), True, True))
    made.measure_node("a", CpuAndMemory(1000, MI))
    load = made.usage.load(made.nodes["a"])
    assert load.other_cpu == 300
    # The node is added up anew only if the usual usage changes, but this difference is kept exact.
    made.measure_pod(pod.uid, PodUsage(CpuAndMemory(900, MI), CpuAndMemory(200, MI), True, True))
    assert made.usage.load(made.nodes["a"]).other_cpu == 100
    # Decisions keep the load that they were made with, for `kedge why`.
    assert load.other_cpu == 300
    made.measure_node("a", CpuAndMemory(850, MI))
    assert made.usage.load(made.nodes["a"]).other_cpu == 0


def test_a_node_is_added_up_anew_only_for_what_is_noticeable() -> None:
    made = snapshot()
    pod = of_owner("p", "web")
    made.place(pod, "a")
    made.measure_node("a", CpuAndMemory(1000, MI))
    made.measure_pod(pod.uid, settled(640))
    load = made.usage.load(made.nodes["a"])
    for cpu in (655, 625):
        made.measure_pod(pod.uid, settled(cpu))
        assert made.usage.load(made.nodes["a"]).usual is load.usual
    made.measure_node("a", CpuAndMemory(2000, 2 * MI))
    load = made.usage.load(made.nodes["a"])
    assert (load.now, load.usual.cpu) == (CpuAndMemory(2000, 2 * MI), 640)
    made.measure_pod(pod.uid, settled(661))
    assert made.usage.load(made.nodes["a"]).usual.cpu == 661
    assert made.usage.expectation(of_owner("q", "web")).amount.cpu == 661


def test_many_small_changes_are_noticed_together() -> None:
    made = snapshot()
    pod = demand("p")
    made.place(pod, "a")
    made.measure_node("a", CpuAndMemory(1000, MI))
    for cpu in range(640, 1281):
        made.measure_pod(pod.uid, settled(cpu))
    assert abs(made.usage.load(made.nodes["a"]).usual.cpu - 1280) <= 1280 // 32


def test_every_report_counts_on_a_node_that_was_not_measured() -> None:
    made = snapshot()
    pod = demand("p")
    made.place(pod, "a")
    for cpu in (640, 650):
        made.measure_pod(pod.uid, settled(cpu))
        assert made.usage.load(made.nodes["a"]).now.cpu == cpu


def test_a_node_that_was_not_measured_is_taken_for_the_sum_of_its_pods() -> None:
    made = snapshot()
    one, other = demand("one"), demand("other")
    for each in (one, other):
        made.place(each, "a")
    made.usage.put_pod(one.uid, settled(700), "")
    load = made.usage.load(made.nodes["a"])
    assert (load.measured, load.now.cpu, load.expected.cpu) == (False, 700, 100)


def test_which_statistics_are_read() -> None:
    def window(n: int, **more: str) -> dict[str, object]:
        peak, usual = ({"cpu": f"{n}{k}m", "memory": f"{n}{k}Mi"} for k in (9, 5))
        middle = {"cpu": f"{n}1m", "memory": f"{n}1Mi"}
        return {"mean": middle, "max": peak, "95th": usual, **more}

    windows = {
        "10s": window(1),
        "1m": window(2),
        "1h": window(3, starttime=SINCE),
        "1d": window(4, starttime=SINCE),
    }
    node = msgspec.convert({"metadata": {"name": "a"}, "machine": windows}, NodeReport)
    assert used_by_node(node) == CpuAndMemory(25, 19 * MI)
    pod = msgspec.convert({"containers": [{"metrics": windows}]}, PodReport)
    measured = PodUsage(
        CpuAndMemory(25, 25 * MI), CpuAndMemory(31, 49 * MI), minute=True, hour=False
    )
    assert used_by_pod(pod) == measured
    several = msgspec.convert({"containers": [{}, {}], "total": windows}, PodReport)
    assert used_by_pod(several) == measured


@pytest.mark.parametrize(("text", "expected"), [("1500001n", 2), ("250m", 250), ("2", 2000)])
def test_cpu_is_read_as_the_server_writes_it(text: str, expected: int) -> None:
    report = pod_report("uid", text, "3Ki")
    measured = used_by_pod(report)
    assert measured is not None
    assert measured.now == CpuAndMemory(expected, 3072)


def test_what_says_too_little_counts_for_nothing() -> None:
    assert used_by_node(NodeReport()) is None
    assert used_by_pod(PodReport()) is None


def test_a_few_millicores_are_not_noticeable_but_they_add_up() -> None:
    made = snapshot()
    pod = demand("p")
    made.place(pod, "a")
    made.measure_node("a", CpuAndMemory(1000, MI))
    made.measure_pod(pod.uid, settled(10))
    load = made.usage.load(made.nodes["a"])
    made.measure_pod(pod.uid, settled(14))
    kept = made.nodes["a"].load
    assert kept is not None
    assert kept.usual == load.usual
    made.measure_pod(pod.uid, settled(15))
    assert made.usage.load(made.nodes["a"]).usual.cpu == 15
    made.measure_pod(pod.uid, settled(15, 104 * MI))
    assert made.usage.load(made.nodes["a"]).usual.memory == 104 * MI
