"""Replay: places the pods of a trace with the real scheduling cycle, and measures the result.

Time advances from one moment of the trace to the next. Pods that ended go, pods that are new are
placed, every node reports, and then the load of the nodes is recorded. Pods use what they used in
the recording, wherever they are. If the memory on a node does not suffice, pods are evicted as the
kubelet does it, those first that exceed their request most, and are placed again.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, Final, NamedTuple

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod import pod as core_pod
from kedge.machinery.quantity import Quantity
from kedge.scheduler.cycle import CycleState, Placement, decide
from kedge.scheduler.demand import PodDemand
from kedge.scheduler.load import CpuAndMemory
from kedge.scheduler.replay.trace import Trace, TracedAmount, TracedPod
from kedge.scheduler.scores.score import Score
from kedge.scheduler.scores.scores import SCORES
from kedge.scheduler.snapshot import Snapshot
from kedge.scheduler.usage import PodUsage

NODE_USAGE: Final = "NodeUsage"
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0


class SimulatedNode(NamedTuple):
    """A node to place pods on."""

    name: str
    cores: float
    memory: float
    labels: Mapping[str, str] = {}


class PlacementPolicy(NamedTuple):
    """A way to place pods."""

    name: str
    scores: Sequence[Score]
    measures: bool
    """Whether nodes report usage to the scheduler."""


class LoadFrame(NamedTuple):
    """The load of all nodes at one moment, in shares of their capacity; above 1 is more than there
    is."""

    cpu: Sequence[float]
    memory: Sequence[float]


class ReplayResult(NamedTuple):
    """The result of one policy."""

    policy: str
    frames: Sequence[LoadFrame]
    evictions: int
    unplaced: int
    """Pods that fitted on no node when they came."""

    @property
    def spread(self) -> float:
        """Most loaded node minus least loaded, cpu, in points of a node: mean over time."""
        return mean(100 * (max(each.cpu) - min(each.cpu)) for each in self.frames)

    @property
    def memory_spread(self) -> float:
        return mean(100 * (max(each.memory) - min(each.memory)) for each in self.frames)

    @property
    def peak(self) -> float:
        """The greatest cpu load of any node at any moment, in percent."""
        return 100 * max(max(each.cpu) for each in self.frames)

    @property
    def overcommit(self) -> float:
        """The share of node-moments, in percent, in which pods wanted more cpu than there is."""
        flat = [load > 1 for each in self.frames for load in each.cpu]
        return 100 * sum(flat) / len(flat)


def policies(weights: Mapping[str, int] | None) -> list[PlacementPolicy]:
    """The policies to compare: by requests only, by usage, and with a user's weights if given."""
    blind = [each for each in SCORES if each.name != NODE_USAGE]
    found = [PlacementPolicy("requests", blind, False), PlacementPolicy("usage", SCORES, True)]
    if weights is not None:
        own = [each._replace(weight=weights.get(each.name, each.weight)) for each in SCORES]
        found.append(PlacementPolicy("weights", [each for each in own if each.weight], True))
    return found


def weights_of(text: str) -> dict[str, int]:
    """Parse `NodeUsage=5,NodeResourcesFit=0`; raises ValueError."""
    known = [each.name for each in SCORES]
    found = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if name not in known or not (number.isascii() and number.isdecimal() and len(number) < 4):
            raise ValueError(
                f'"{part}" is not SCORE=WEIGHT, with a weight of 0 to 999 and one of the scores'
                f" {', '.join(known)}"
            )
        found[name] = int(number)
    if not any(({each.name: each.weight for each in SCORES} | found).values()):
        raise ValueError("all weights are 0")
    return found


def replay(trace: Trace, nodes: Sequence[SimulatedNode], policy: PlacementPolicy) -> ReplayResult:
    """Replay the whole trace."""
    run = _ReplayRun(trace, nodes, policy)
    for number in range(len(trace.moments)):
        run.step(number)
    return ReplayResult(policy.name, run.frames, run.evictions, run.unplaced)


class _ReplayRun:
    """One replay."""

    def __init__(
        self, trace: Trace, nodes: Sequence[SimulatedNode], policy: PlacementPolicy
    ) -> None:
        self._trace = trace
        self._nodes = {each.name: each for each in nodes}
        self._policy = policy
        self._snapshot, self._turn = Snapshot(), CycleState(1)
        for each in nodes:
            self._snapshot.put_node(node_document(each))
        self._homes: dict[str, dict[str, TracedPod]] = {each.name: {} for each in nodes}
        self._hours: dict[str, deque[tuple[float, float]]] = {}
        """The moments of the last hour, and the cores that each pod used in them."""
        self._latest: dict[str, TracedAmount] = {}
        self._waiting: list[TracedPod] = []
        self._demands = {each.key: PodDemand(pod_document(each)) for each in trace.pods}
        self._arrivals: dict[int, list[TracedPod]] = {}
        for pod in trace.pods:
            self._arrivals.setdefault(pod.first, []).append(pod)
        self.frames: list[LoadFrame] = []
        self.evictions = self.unplaced = 0

    def step(self, number: int) -> None:
        self._remove_ended(number)
        waiting, self._waiting = self._waiting, []
        for pod in waiting:
            self._place(pod)
        for pod in self._arrivals.get(number, ()):
            if not self._place(pod):
                self.unplaced += 1
        self._measure(number)
        self._evict()
        self.frames.append(self._frame())

    def _remove_ended(self, number: int) -> None:
        self._waiting = [pod for pod in self._waiting if pod.last >= number]
        for here in self._homes.values():
            for key in [key for key, pod in here.items() if pod.last < number]:
                self._remove(here, key)

    def _remove(self, here: dict[str, TracedPod], key: str) -> TracedPod:
        uid = self._demands[key].uid
        self._snapshot.remove(uid)
        self._snapshot.usage.remove_pod(uid)
        return here.pop(key)

    def _place(self, pod: TracedPod) -> bool:
        demand = self._demands[pod.key]
        found = decide(demand, self._snapshot, self._turn, scores=self._policy.scores)
        if not isinstance(found, Placement):
            self._waiting.append(pod)
            return False
        self._snapshot.place(demand, found.node)
        self._homes[found.node][pod.key] = pod
        return True

    def _measure(self, number: int) -> None:
        """Take over what pods use now; a moment without a sample is as the one before."""
        moment = self._trace.moments[number]
        for name, here in self._homes.items():
            for key, pod in here.items():
                now = pod.amounts.get(number) or self._latest.get(key, TracedAmount())
                self._latest[key] = now
                hour = self._hours.setdefault(key, deque())
                hour.append((moment, now.cores))
                while hour[0][0] <= moment - _HOUR:
                    hour.popleft()
                if self._policy.measures:
                    age = moment - self._trace.moments[pod.first]
                    usual = mean(cores for _, cores in hour)
                    self._snapshot.measure_pod(
                        self._demands[key].uid,
                        PodUsage(
                            _measured(now),
                            _measured(TracedAmount(usual, now.memory)),
                            minute=age >= _MINUTE,
                            hour=age >= _HOUR,
                        ),
                    )
            if self._policy.measures:
                self._snapshot.measure_node(name, _measured(self._load(here)))

    def _load(self, here: Mapping[str, TracedPod]) -> TracedAmount:
        found = [self._latest[key] for key in here]
        return TracedAmount(sum(each.cores for each in found), sum(each.memory for each in found))

    def _evict(self) -> None:
        for name, here in self._homes.items():
            most = self._nodes[name].memory
            while here and self._load(here).memory > most:
                key = max(here, key=self._excess)
                self._waiting.append(self._remove(here, key))
                self.evictions += 1

    def _excess(self, key: str) -> float:
        return self._latest[key].memory - self._demands[key].memory

    def _frame(self) -> LoadFrame:
        loads = [(self._load(here), self._nodes[name]) for name, here in self._homes.items()]
        return LoadFrame(
            [used.cores / there.cores for used, there in loads],
            [used.memory / there.memory for used, there in loads],
        )


def _measured(used: TracedAmount) -> CpuAndMemory:
    return CpuAndMemory(int(used.cores * 1000) + 1, int(used.memory))


def node_document(made: SimulatedNode) -> Node:
    """A node as the scheduler knows it."""
    amounts = {"cpu": f"{round(made.cores * 1000)}m", "memory": str(int(made.memory))}
    labels = {"kubernetes.io/hostname": made.name, **made.labels}
    status = {"allocatable": amounts | {"pods": "110"}, "capacity": amounts | {"pods": "110"}}
    return node.RESOURCE.from_document(
        {"metadata": {"name": made.name, "labels": labels}, "status": status}
    )


def pod_document(traced: TracedPod) -> core_pod.Pod:
    """A pod as the scheduler knows it; replicas share an owner."""
    namespace, _, name = traced.key.partition("/")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    owner |= {"name": traced.workload, "uid": traced.workload}
    meta = {"name": name, "namespace": namespace, "uid": traced.key}
    container: dict[str, Any] = {"name": "c", "image": "i"}
    if traced.requests:
        container["resources"] = {"requests": dict(traced.requests)}
    return core_pod.RESOURCE.from_document(
        {
            "metadata": meta | {"labels": {"app": traced.workload}, "ownerReferences": [owner]},
            "spec": {"containers": [container]},
        }
    )


def nodes_of(document: Any) -> list[SimulatedNode]:
    """The nodes of a NodeList, as `kubectl get nodes -o json` prints it; raises ValueError."""
    found = [node.RESOURCE.from_document(each) for each in document.get("items", [document])]
    made = []
    for each in found:
        room = each.status.allocatable
        cpu, memory = room.get("cpu", Quantity(0)), room.get("memory", Quantity(0))
        if not cpu.nanos or not memory.nanos:
            raise ValueError(f'node "{each.metadata.name}" has no allocatable cpu and memory')
        labels = each.metadata.labels
        made.append(SimulatedNode(each.metadata.name, cpu.nanos / 1e9, memory.nanos / 1e9, labels))
    return made
