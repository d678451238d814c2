from kedge.apiserver.fairness.fair_queues import FairQueues, WaitingRequest, hand
from kedge.apiserver.fairness.work_estimate import WorkEstimate


class Line:
    """Requests of named flows, and the order in which they got their seats."""

    def __init__(self, queues: FairQueues) -> None:
        self.queues = queues
        self.begun: list[str] = []
        self.running: list[WaitingRequest] = []

    def ask(self, flow: str, width: int = 1, now: float = 0.0) -> bool:
        request = WaitingRequest(WorkEstimate(width), lambda: self._begin(flow, request))
        return self.queues.offer(request, flow, now)

    def _begin(self, flow: str, request: WaitingRequest) -> None:
        self.begun.append(flow)
        self.running.append(request)

    def finish(self, now: float) -> None:
        self.queues.leave(self.running.pop(0), now)


def test_a_hand_has_different_queues_and_is_always_the_same() -> None:
    dealt = hand("ann", 128, 6)
    assert len({*dealt}) == 6
    assert all(0 <= each < 128 for each in dealt)
    assert hand("ann", 128, 6) == dealt
    assert hand("bob", 128, 6) != dealt
    assert sorted(hand("ann", 4, 9)) == [0, 1, 2, 3]


def test_a_request_has_its_seats_at_once_while_there_are_some() -> None:
    line = Line(FairQueues(2, 8, 2, 10))
    assert [line.ask("a") for _ in range(3)] == [True] * 3
    assert line.begun == ["a", "a"]
    assert not line.queues.is_free
    line.finish(1.0)
    assert line.begun == ["a"] * 3


def test_a_flood_does_not_delay_another_flow() -> None:
    line = Line(FairQueues(1, 64, 6, 50))
    for _ in range(40):
        line.ask("flood")
    line.ask("quiet", now=0.01)
    for turn in range(6):
        line.finish(0.02 + turn * 0.01)
    # Before it comes at most one request of each of the six queues that the flood has.
    assert "quiet" in line.begun


def test_two_floods_share_the_seats() -> None:
    line = Line(FairQueues(1, 64, 1, 500))
    for flow in ("a", "b"):
        for _ in range(100):
            line.ask(flow)
    for turn in range(1, 101):
        line.finish(turn * 0.01)
    assert 45 <= line.begun.count("a") <= 55


def test_a_full_queue_refuses() -> None:
    line = Line(FairQueues(1, 2, 1, 3))
    assert [line.ask("a") for _ in range(5)] == [True] * 4 + [False]
    other = next(f"o{i}" for i in range(20) if hand(f"o{i}", 2, 1) != hand("a", 2, 1))
    assert line.ask(other)


def test_a_level_without_queues_refuses_beyond_its_seats_but_serves_one() -> None:
    line = Line(FairQueues(0, 0, 0, 0))
    assert line.ask("a")
    assert not line.ask("a")
    line.finish(1.0)
    assert line.ask("a")


def test_a_level_without_seats_lets_its_queues_wait() -> None:
    line = Line(FairQueues(0, 4, 2, 10))
    assert line.ask("a")
    assert line.begun == []
    line.queues.resize(1, 1.0)
    assert line.begun == ["a"]


def test_a_wide_request_takes_several_seats_and_runs_alone_if_it_must() -> None:
    line = Line(FairQueues(3, 4, 2, 10))
    line.ask("a", 2)
    line.ask("b", 2)
    assert line.begun == ["a"]
    line.finish(0.1)
    assert line.begun == ["a", "b"]
    line.ask("c", 9)
    line.finish(0.2)
    assert line.begun == ["a", "b", "c"]


def test_a_request_that_gives_up_leaves_its_queue() -> None:
    queues = FairQueues(1, 4, 2, 10)
    line = Line(queues)
    line.ask("a")
    waiting = WaitingRequest(WorkEstimate(1), lambda: None)
    queues.offer(waiting, "b", 0.0)
    assert queues.waiting == 1
    queues.leave(waiting, 0.1)
    assert queues.waiting == 0
    queues.leave(waiting, 0.1)
    assert (queues.waiting, queues.running) == (0, 1)


def test_an_answer_that_takes_no_seat_waits_only_behind_its_own_flow() -> None:
    line = Line(FairQueues(1, 64, 6, 50))
    assert line.queues.has_turn("flood")
    for _ in range(40):
        line.ask("flood")
    assert not line.queues.is_free
    assert not line.queues.has_turn("flood")
    assert line.queues.has_turn("quiet")
    assert not FairQueues(0, 64, 6, 50).has_turn("quiet")
    unqueued = Line(FairQueues(1, 0, 0, 0))
    unqueued.ask("flood")
    assert not unqueued.queues.has_turn("quiet")
