from kedge.apiserver.fairness.dropped_requests import DroppedRequests

BEGIN = 1_000_000


def waits(*steps: tuple[int, int]) -> list[int]:
    """Return what clients are told after each second with its number of rejections."""
    dropped = DroppedRequests()
    return [[dropped.record(BEGIN + at) for _ in range(count)][-1] for at, count in steps]


def test_the_first_rejections_ask_for_one_second() -> None:
    assert waits((0, 1000)) == [1]


def test_the_time_doubles_after_many_rejections_and_falls_after_few() -> None:
    steps = ((0, 5), (1, 11), (2, 1), (3, 11), (4, 1), (7, 1), (11, 1), (15, 1), (17, 1))
    assert waits(*steps, (21, 14), (22, 1)) == [1, 2, 2, 4, 4, 8, 8, 7, 6, 5, 10]


def test_two_rejections_a_second_do_not_raise_it() -> None:
    assert waits(*((second, 2) for second in range(50))) == [1] * 50


def test_it_never_exceeds_32_seconds() -> None:
    told = waits(*((second, 10) for second in range(200)))
    assert told[-1] == max(told) == 32
    assert sorted(set(told)) == [1, 2, 4, 8, 16, 32]


def test_old_seconds_are_forgotten() -> None:
    dropped = DroppedRequests()
    for second in range(500):
        for _ in range(10):
            dropped.record(BEGIN + second)
    assert len(dropped._past) <= 33


def test_after_a_calm_while_it_falls_with_each_second_of_a_rejection() -> None:
    flood = [(second, 10) for second in range(10)]
    assert waits(*flood, (100, 1), (200, 1), (300, 1))[-4:] == [8, 7, 6, 5]
