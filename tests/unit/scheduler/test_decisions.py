import gc
from collections.abc import Iterator
from datetime import UTC, datetime

from kedge.client.informer import Key
from kedge.scheduler.cycle import CycleState, decide
from kedge.scheduler.decisions import KEPT, ROWS, DecidedPod, DecisionLog, DecisionRecord, record
from kedge.scheduler.snapshot import Snapshot
from kedge.testing.scheduling import cluster, demand, new_node

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def decided(name: str, snapshot: Snapshot) -> DecisionRecord:
    pod = demand(name)
    return record(pod, decide(pod, snapshot, CycleState()), snapshot, NOW)


def test_the_oldest_decisions_are_forgotten() -> None:
    log, snapshot = DecisionLog(), cluster(new_node("a"))
    for number in range(KEPT + 5):
        log.add(decided(f"p{number}", snapshot))
    assert len(log) == KEPT
    assert log.get(Key("default", "p4")) is None
    assert log.get(Key("default", "p5")) is not None


def test_decisions_among_many_nodes_are_kept_for_shorter() -> None:
    nodes = 100
    log, snapshot = DecisionLog(), cluster(*(new_node(f"n{number}") for number in range(nodes)))
    for number in range(ROWS // nodes + 3):
        log.add(decided(f"p{number}", snapshot))
    assert len(log) == ROWS // nodes


def reachable(*start: object) -> Iterator[object]:
    found: dict[int, object] = {}
    fresh = list(start)
    while fresh:
        fresh = [each for each in gc.get_referents(*fresh) if id(each) not in found]
        fresh = [each for each in fresh if not isinstance(each, type)]
        found.update((id(each), each) for each in fresh)
    yield from found.values()


def test_a_pod_may_be_large_and_is_not_kept() -> None:
    pod, snapshot = demand("p"), cluster()
    kept = record(pod, decide(pod, snapshot, CycleState()), snapshot, NOW)
    assert not [each for each in reachable(*kept) if each is pod or each is pod.pod]


def test_reasons_count_as_much_as_nodes() -> None:
    snapshot = cluster(new_node("a"))
    few = decided("p", snapshot).rows
    asks = {f"example.com/r{number}": "1" for number in range(50)}
    pod = demand("p", requests=asks)
    many = record(pod, decide(pod, snapshot, CycleState()), snapshot, NOW)
    assert many.rows >= few + 49


def test_of_a_pod_only_the_latest_decision_is_kept() -> None:
    log, snapshot = DecisionLog(), cluster()
    log.add(decided("p", snapshot))
    snapshot.put_node(new_node("a"))
    latest = decided("p", snapshot)
    log.add(latest)
    assert len(log) == 1
    assert log.get(Key("default", "p")) is latest


def test_nodes_that_nobody_asked_are_counted() -> None:
    snapshot = cluster(*(new_node(f"n{number}") for number in range(300)))
    told = DecidedPod(decided("p", snapshot), None, ()).whole()
    assert len(told.nodes) + told.notAsked == 300
    assert told.notAsked == 300 - 144
