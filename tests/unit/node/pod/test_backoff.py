from kedge.node.pod.backoff import BackoffDelay, BackoffPolicy

BACKOFF = BackoffPolicy(first=10, most=300)


def test_delays_double_up_to_the_longest() -> None:
    delay: BackoffDelay | None = None
    seconds = []
    for _ in range(7):
        delay = BACKOFF.after(delay, 1000, 1000)
        seconds.append(delay.seconds)
    assert seconds == [10, 20, 40, 80, 160, 300, 300]


def test_whatever_held_out_for_long_starts_over() -> None:
    assert BACKOFF.after(BackoffDelay(160, 1000), 1600, 1601).seconds == 300
    assert BACKOFF.after(BackoffDelay(160, 1000), 1601, 1602).seconds == 10


def test_a_failure_waits_from_when_it_failed() -> None:
    delay = BackoffDelay(10, 1000)
    assert BACKOFF.waits(delay, 1005, 1014)
    assert not BACKOFF.waits(delay, 1005, 1015)
    assert not BACKOFF.waits(None, 1005, 1005)
