from collections import Counter

from kedge.scheduler.cycle import CycleState, Placement, decide, rank
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.load import CpuAndMemory
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import PodUsage
from kedge.testing.scheduling import cluster, demand, new_node

GI = 1 << 30


def rated(pod: PodDemand, snapshot: Snapshot) -> list[int] | None:
    """What the score gave each node, in their order; None if it made no difference."""
    ranking = rank(pod, snapshot, [*snapshot.nodes.values()])
    return next((list(found) for each, found in ranking.parts if each.name == "NodeUsage"), None)


def chosen(pod: PodDemand, snapshot: Snapshot) -> str:
    decision = decide(pod, snapshot, CycleState())
    assert isinstance(decision, Placement)
    return decision.node


def test_without_metrics_it_is_silent() -> None:
    assert rated(demand(), cluster(new_node("a"), new_node("b"))) is None


def test_metrics_of_nodes_that_cannot_be_chosen_make_no_difference() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    snapshot.usage.put_node("elsewhere", CpuAndMemory(1, 1))
    assert rated(demand(), snapshot) is None


def test_a_best_effort_pod_goes_where_least_is_used_at_the_moment() -> None:
    snapshot = cluster(new_node("a"), new_node("b"), new_node("c"))
    snapshot.usage.put_node("a", CpuAndMemory(2900, 1 * GI))
    snapshot.usage.put_node("b", CpuAndMemory(900, 1 * GI))
    snapshot.usage.put_node("c", CpuAndMemory(1100, 1 * GI))
    # A tenth of a machine makes the whole difference: c has 200m more to do than b, a far more.
    assert rated(demand(), snapshot) == [0, 100, 50]
    assert chosen(demand(), snapshot) == "b"


def test_a_best_effort_pod_sees_the_hour_of_pods_and_the_minute_of_all_else() -> None:
    snapshot = cluster(new_node("a"), new_node("b"), new_node("c"))
    calm, busy = demand("calm"), demand("busy")
    snapshot.place(calm, "a")
    snapshot.place(busy, "b")
    usual = CpuAndMemory(1000, GI)
    # In this minute, one pod uses less than in its hour and the other one more.
    for pod, now in ((calm, 100), (busy, 2000)):
        measured = PodUsage(CpuAndMemory(now, GI), usual, minute=True, hour=True)
        snapshot.measure_pod(pod.uid, measured)
    snapshot.measure_node("a", CpuAndMemory(100, GI))
    snapshot.measure_node("b", CpuAndMemory(2000, GI))
    snapshot.measure_node("c", CpuAndMemory(1200, GI))
    assert rated(demand(), snapshot) == [100, 100, 50]
    snapshot.measure_node("a", CpuAndMemory(300, GI))
    assert rated(demand(), snapshot) == [50, 100, 50], "200m are used by no pod"


def test_memory_counts_when_it_is_scarce() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    snapshot.usage.put_node("a", CpuAndMemory(400, 4 * GI))
    snapshot.usage.put_node("b", CpuAndMemory(600, 1 * GI))
    assert rated(demand(), snapshot) == [100, 50]
    snapshot.usage.put_node("a", CpuAndMemory(400, 7 * GI))
    snapshot.reconsider("a")
    assert rated(demand(), snapshot) == [0, 100]


def test_nodes_that_are_equally_full_make_no_difference() -> None:
    snapshot = cluster(new_node("a"), new_node("b", cpu="8", memory="16Gi"))
    snapshot.usage.put_node("a", CpuAndMemory(900, GI))
    snapshot.usage.put_node("b", CpuAndMemory(1900, GI))
    assert rated(demand(), snapshot) is None


def test_a_pod_with_requests_goes_where_least_is_usually_used() -> None:
    snapshot = cluster(new_node("a"), new_node("b"))
    for name in ("a", "b"):
        snapshot.usage.put_node(name, CpuAndMemory(1000, GI))
    modest = demand("modest", requests={"cpu": "100m", "memory": "1Gi"})
    honest = demand("honest", requests={"cpu": "500m", "memory": "1Gi"})
    snapshot.place(modest, "a")
    snapshot.place(honest, "b")
    pod = demand(requests={"cpu": "100m", "memory": "1Gi"})
    assert chosen(pod, snapshot) == "a"
    assert rated(pod, snapshot) == [100, 0]
    # Asks for 100m, and has used 900m all day long.
    used = CpuAndMemory(900, GI)
    snapshot.usage.put_pod(
        modest.uid, PodUsage(CpuAndMemory(5, GI), used, minute=True, hour=True), ""
    )
    snapshot.reconsider("a")
    assert rated(pod, snapshot) == [0, 100]
    assert chosen(pod, snapshot) == "b"


def test_a_burst_does_not_land_on_the_one_node_that_is_idle() -> None:
    snapshot = cluster(*(new_node(name) for name in "abcd"))
    for name in "abcd":
        snapshot.usage.put_node(name, CpuAndMemory(100 if name == "a" else 400, GI))
    homes: Counter[str] = Counter()
    turn = CycleState()
    for number in range(40):
        pod = demand(f"p{number}")
        decision = decide(pod, snapshot, turn)
        assert isinstance(decision, Placement)
        snapshot.place(pod, decision.node)
        homes[decision.node] += 1
    assert set(homes) == set("abcd")
    assert max(homes.values()) <= 14


def test_an_idle_node_does_not_outweigh_a_wish_a_taint_or_spreading() -> None:
    wish = {"key": "disk", "operator": "In", "values": ["fast"]}
    term = {"weight": 1, "preference": {"matchExpressions": [wish]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    snapshot = cluster(new_node("busy", labels={"disk": "fast"}), new_node("idle"))
    snapshot.usage.put_node("busy", CpuAndMemory(4000, GI))
    snapshot.usage.put_node("idle", CpuAndMemory(0, GI))
    assert chosen(demand(affinity=affinity), snapshot) == "busy"
    assert chosen(demand(), snapshot) == "idle"
    taint = {"key": "x", "effect": "PreferNoSchedule"}
    snapshot.put_node(new_node("idle", taints=[taint]))
    assert chosen(demand(), snapshot) == "busy"
    snapshot.put_node(new_node("idle"))
    labels = {"app": "web"}
    snapshot.place(demand("there", labels=labels), "idle")
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    assert chosen(demand("alone", labels=labels), snapshot) == "idle"
    spread = demand("apart", labels=labels, topologySpreadConstraints=[rule])
    assert chosen(spread, snapshot) == "busy"


def test_usage_never_keeps_a_pod_from_a_node() -> None:
    snapshot = cluster(new_node("a"))
    snapshot.usage.put_node("a", CpuAndMemory(4000, 8 * GI))
    assert chosen(demand(requests={"cpu": "4"}), snapshot) == "a"
