from kedge.node.stats.node_share import LOOK_AGAIN, NodeShareSource


class FakeUsage:
    """A source with the given reading."""

    def __init__(self, cpu: int, memory: int) -> None:
        self.reading: tuple[int, int] | None = (cpu, memory)

    def read(self) -> tuple[int, int] | None:
        return self.reading

    def close(self) -> None:
        return


class SharedMachine:
    """A machine with a node of ours and others."""

    def __init__(self) -> None:
        self.whole = FakeUsage(1000, 800)
        self.own = FakeUsage(100, 200)
        self.others: dict[str, FakeUsage] = {}
        self.source = NodeShareSource(
            self.whole, self.own, lambda: [*self.others, "/absent"], self._source_of
        )

    def _source_of(self, path: str) -> FakeUsage:
        found = self.others.get(path)
        if found is None:
            found = FakeUsage(0, 0)
            found.reading = None
        return found

    def later(self) -> tuple[int, int] | None:
        for _ in range(LOOK_AGAIN):
            reading = self.source.read()
        return reading


def test_a_node_that_is_alone_uses_the_whole_machine() -> None:
    machine = SharedMachine()
    assert machine.source.read() == (1000, 800)
    assert machine.source.run == 1


def test_nodes_of_one_machine_share_what_is_no_pod() -> None:
    machine = SharedMachine()
    machine.others["/b"] = FakeUsage(300, 0)
    # 100 of its own, and half of 1000 - 100 - 300.
    assert machine.source.read() == (400, 500)


def test_the_shares_of_all_nodes_are_the_machine() -> None:
    here, there = SharedMachine(), SharedMachine()
    there.own.reading = (300, 0)
    here.others["/b"], there.others["/a"] = there.own, here.own
    readings = [here.source.read(), there.source.read()]
    assert [sum(each) for each in zip(*filter(None, readings), strict=True)] == [1000, 800]


def test_another_number_of_nodes_is_another_run() -> None:
    machine = SharedMachine()
    machine.later()
    machine.others["/b"] = FakeUsage(300, 0)
    machine.later()
    machine.source.read()
    run = machine.source.run
    assert run != 1
    machine.others["/b"].reading = None
    assert machine.source.read() is None, "its share is not known now"
    assert machine.source.read() == (1000, 800)
    assert machine.source.run == 1


def test_a_node_without_pods_has_its_share_only() -> None:
    machine = SharedMachine()
    machine.own.reading = None
    machine.others["/b"] = FakeUsage(300, 0)
    assert machine.source.read() == (350, 400)


def test_processor_time_does_not_fall_by_the_order_of_reading() -> None:
    machine = SharedMachine()
    machine.others["/b"] = FakeUsage(300, 0)
    before = machine.source.read()
    machine.others["/b"].reading = (310, 0)
    after = machine.source.read()
    assert before is not None
    assert after is not None
    assert after[0] == before[0]
