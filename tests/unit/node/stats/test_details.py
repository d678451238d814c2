"""Values of a tick, from counters."""

from kedge.metrics.detail_windows import NONE_KNOWN
from kedge.metrics.series_memory import UNKNOWN
from kedge.node.stats.details import NUMBER, PERIODS, DetailMeter, DetailReading, added

STORAGE = NUMBER["ephemeral-storage"]
RECEIVE = NUMBER["network-receive"]
THROTTLED = NUMBER["cpu-throttled"]
PRESSURE = NUMBER["memory-pressure-some"]


class Counters:
    """Counters that a test sets. Fulfils DetailSource."""

    def __init__(self) -> None:
        self.known: dict[int, float] = {}
        self.reads = 0
        self.closed = False

    def fill(self, found: DetailReading) -> None:
        self.reads += 1
        for at, each in self.known.items():
            found[at] = each

    def close(self) -> None:
        self.closed = True


def meter(**known: float) -> tuple[DetailMeter, Counters]:
    counters, made = Counters(), DetailMeter()
    counters.known = {NUMBER[name.replace("_", "-")]: each for name, each in known.items()}
    made.read_from(counters)
    return made, counters


def test_a_first_reading_has_amounts_and_no_rates() -> None:
    made, _ = meter(ephemeral_storage=100.0, network_receive=500.0)
    values = made.values(10.0, 1)
    assert (values[STORAGE], values[RECEIVE]) == (100.0, UNKNOWN)


def test_a_rate_is_the_growth_over_the_time() -> None:
    made, counters = meter(network_receive=500.0)
    made.values(10.0, 1)
    counters.known[RECEIVE] = 1500.0
    assert made.values(20.0, 2)[RECEIVE] == 100.0


def test_a_run_that_began_just_now_counts_from_its_start() -> None:
    made, _ = meter(network_receive=500.0)
    made.start_from(5.0)
    assert made.values(10.0, 1)[RECEIVE] == 100.0


def test_a_counter_that_fell_or_vanished_is_unknown_for_a_tick() -> None:
    made, counters = meter(network_receive=500.0)
    made.values(10.0, 1)
    counters.known[RECEIVE] = 20.0
    assert made.values(20.0, 2)[RECEIVE] == UNKNOWN
    counters.known[RECEIVE] = 30.0
    assert made.values(30.0, 3)[RECEIVE] == 1.0
    counters.known.clear()
    assert made.values(40.0, 4)[RECEIVE] == UNKNOWN


def test_throttling_is_the_share_of_periods() -> None:
    made, counters = meter(cpu_throttled=10.0)
    counters.known[PERIODS] = 100.0
    made.values(10.0, 1)
    counters.known |= {PERIODS: 180.0, THROTTLED: 30.0}
    assert made.values(20.0, 2)[THROTTLED] == 0.25
    assert made.values(30.0, 3)[THROTTLED] == 0.0


def test_pressure_is_a_share_of_the_time_and_never_more() -> None:
    made, counters = meter(memory_pressure_some=1.0)
    made.values(10.0, 1)
    counters.known[PRESSURE] = 3.5
    assert made.values(20.0, 2)[PRESSURE] == 0.25
    counters.known[PRESSURE] = 13.6
    assert made.values(30.0, 3)[PRESSURE] == 1.0


def test_a_thing_that_has_not_run_is_not_read() -> None:
    made, counters = meter(ephemeral_storage=100.0, network_receive=500.0)
    made.values(10.0, 7)
    made.values(20.0, 7)
    values = made.values(30.0, 7)
    assert counters.reads == 2
    assert (values[STORAGE], values[RECEIVE], values[PRESSURE]) == (100.0, 0.0, UNKNOWN)


def test_another_run_closes_the_sources_of_the_last() -> None:
    made, counters = meter()
    made.read_from()
    assert counters.closed


def test_amounts_add_up_and_the_largest_share_counts() -> None:
    one, two, whole = (list(NONE_KNOWN) for _ in range(3))
    one[RECEIVE], two[RECEIVE] = 5.0, 6.0
    one[THROTTLED], two[THROTTLED] = 0.5, 0.25
    two[STORAGE] = 7.0
    whole[PRESSURE] = 0.125
    total = added([one, two], whole)
    assert [total[at] for at in (RECEIVE, THROTTLED, STORAGE, PRESSURE)] == [11, 0.5, 7, 0.125]
    assert total[NUMBER["oom-kills"]] == UNKNOWN


def test_a_thing_that_is_blocked_is_read_although_it_does_not_run() -> None:
    made, counters = meter(memory_pressure_some=1.0)
    made.values(10.0, 7)
    for at in (20.0, 30.0, 40.0):
        counters.known[PRESSURE] += 10.0
        assert made.values(at, 7)[PRESSURE] == 1.0
    assert made.values(50.0, 7)[PRESSURE] == 0.0
    made.values(60.0, 7)
    assert counters.reads == 5


def test_a_thing_that_ran_is_read_once_more() -> None:
    made, counters = meter(memory_pressure_some=1.0)
    for at in (10.0, 20.0):
        made.values(at, 7)
    made.values(30.0, 8)
    counters.known[PRESSURE] += 5.0
    assert made.values(40.0, 8)[PRESSURE] == 0.5
