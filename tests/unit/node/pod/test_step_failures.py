from kedge.node.pod.backoff import IMAGE_PULL
from kedge.node.pod.step_failures import StepFailures
from kedge.testing.clock import FakeClock


def delay(failures: StepFailures, step: str = "ctr") -> float:
    return failures.by_step[step].delay.seconds


def test_the_delay_of_a_step_grows_with_each_failure() -> None:
    failures = StepFailures(FakeClock())
    delays = []
    for _ in range(5):
        failures.record("ctr", "Error", "no")
        delays.append(delay(failures))
    assert delays == [1, 2, 4, 8, 10]
    assert not failures.by_step["ctr"].is_pull


def test_another_image_starts_without_a_delay() -> None:
    failures = StepFailures(FakeClock())
    failures.record("ctr", "ErrImagePull", "no", IMAGE_PULL, "a")
    failures.record("ctr", "ErrImagePull", "no", IMAGE_PULL, "a")
    assert (delay(failures), failures.by_step["ctr"].is_pull) == (20, True)
    failures.record("ctr", "ErrImagePull", "no", IMAGE_PULL, "b")
    assert delay(failures) == 10


def test_a_step_that_succeeds_is_forgotten() -> None:
    failures = StepFailures(FakeClock())
    failures.record("one", "Error", "no")
    failures.record("other", "Error", "no")
    failures.clear("one")
    failures.clear("unknown")
    assert list(failures.by_step) == ["other"]
