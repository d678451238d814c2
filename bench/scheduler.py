"""How many pods the scheduler decides about in a second of processor time.

Each round takes one pod through the pure part of scheduling: what it asks for, the filters, the
scores, the choice, and its place on the chosen node. Neither the API nor the store takes part.
"""

from collections.abc import Callable
from time import process_time
from typing import Any

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.scheduler.cycle import CycleState, FitError, Placement, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.load import CpuAndMemory
from kedge.scheduler.preemption import PreemptionCandidate, preempt
from kedge.scheduler.snapshot import Snapshot

CLUSTERS = (100, 1_000)
PODS_PER_NODE = 20


def main() -> None:
    print(f"{'pods decided per second by nodes':40}{''.join(f'{n:>10,}' for n in CLUSTERS)}")
    for name, spec in WORKLOADS.items():
        rates = [placed(nodes, spec) for nodes in CLUSTERS]
        print(f"{name:40}{''.join(f'{each:10,.0f}' for each in rates)}")
    for name in MEASURED:
        rates = [placed(nodes, WORKLOADS[name], measured=True) for nodes in CLUSTERS]
        print(f"{name + ', nodes measured':40}{''.join(f'{each:10,.0f}' for each in rates)}")
    rates = [preempted(nodes) for nodes in CLUSTERS]
    print(f"{'preemption, every node being full':40}{''.join(f'{each:10,.0f}' for each in rates)}")


def placed(nodes: int, spec: Callable[[int], dict[str, Any]], *, measured: bool = False) -> float:
    """Fill a cluster to a fifth with pods of one sort."""
    snapshot, turn = cluster(nodes), CycleState(1)
    for number in range(nodes if measured else 0):
        snapshot.usage.put_node(f"node-{number}", CpuAndMemory(1000 + number, number << 20))
    count = min(nodes * PODS_PER_NODE, 4_000)
    pods = [a_pod(number, spec(number)) for number in range(count)]
    begun = process_time()
    for each in pods:
        demand = PodDemand(each)
        decision = decide(demand, snapshot, turn)
        assert isinstance(decision, Placement), decision.message
        snapshot.place(demand, decision.node)
    return count / (process_time() - begun)


def preempted(nodes: int) -> float:
    """Find the pods that must go for an important one, where nothing is free."""
    snapshot, turn = cluster(nodes), CycleState(1)
    for number in range(nodes):
        for part in range(4):
            name = number * 4 + part
            snapshot.place(PodDemand(a_pod(name, requesting("8", "30Gi"))), f"node-{number}")
    demand = PodDemand(a_pod(-1, {"priority": 1000} | requesting("4", "1Gi")))
    rounds = 20
    begun = process_time()
    for _ in range(rounds):
        unfit = decide(demand, snapshot, turn)
        assert isinstance(unfit, FitError)
        assert isinstance(preempt(demand, snapshot, unfit, [], turn), PreemptionCandidate)
    return rounds / (process_time() - begun)


def cluster(nodes: int) -> Snapshot:
    snapshot = Snapshot()
    for number in range(nodes):
        snapshot.put_node(a_node(number))
    return snapshot


def a_node(number: int) -> Node:
    name = f"node-{number}"
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "topology.kubernetes.io/region": "region",
    }
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    status = {"allocatable": amounts, "capacity": amounts}
    return node.RESOURCE.from_document(
        {"metadata": {"name": name, "labels": labels}, "status": status}
    )


def a_pod(number: int, spec: dict[str, Any]) -> Pod:
    meta = {
        "name": f"pod-{number}",
        "namespace": "default",
        "uid": f"uid-{number}",
        "labels": {"app": f"app-{number % 10}"},
    }
    whole = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "default-scheduler"}
    return pod.RESOURCE.from_document({"metadata": meta, "spec": whole | spec})


def requesting(cpu: str, memory: str) -> dict[str, Any]:
    requests = {"requests": {"cpu": cpu, "memory": memory}}
    return {"containers": [{"name": "c", "image": "i", "resources": requests}]}


def _selected(number: int) -> dict[str, Any]:
    return {"matchLabels": {"app": f"app-{number % 10}"}}


def _mixed(number: int) -> dict[str, Any]:
    return requesting(f"{100 + number % 7 * 50}m", f"{128 << number % 4}Mi")


def _spread(number: int) -> dict[str, Any]:
    rules = [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _selected(number),
        },
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": _selected(number),
        },
    ]
    return requesting("100m", "128Mi") | {"topologySpreadConstraints": rules}


def _apart(number: int) -> dict[str, Any]:
    term = {"labelSelector": _selected(number), "topologyKey": "kubernetes.io/hostname"}
    wish = {"weight": 100, "podAffinityTerm": term}
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    return requesting("100m", "128Mi") | {"affinity": affinity}


WORKLOADS: dict[str, Callable[[int], dict[str, Any]]] = {
    "best effort": lambda number: {},
    "requests, all alike": lambda number: requesting("100m", "128Mi"),
    "requests of 28 sizes": _mixed,
    "spread over zones and nodes": _spread,
    "preferred anti-affinity": _apart,
}
MEASURED = ("best effort", "requests, all alike")
"""Those that are tried once more in a cluster whose nodes say what they use."""


if __name__ == "__main__":
    main()
