import pytest

from kedge.node.pod.backoff import BackoffDelay
from kedge.node.pod.waiting import StepFailure, WaitingReason, crash_loop, pod_label
from kedge.testing.pods import new_pod

POD = new_pod(metadata={"uid": "u"})


def failure(*, is_pull: bool) -> StepFailure:
    delay = BackoffDelay(10, 100)
    return StepFailure("ErrImagePull", "no route", 100, delay, is_pull=is_pull, image="i")


@pytest.mark.parametrize(
    ("is_pull", "now", "expected", "next_change"),
    [
        (True, 100, WaitingReason("ErrImagePull", "no route"), 105),
        (
            True,
            105,
            WaitingReason("ImagePullBackOff", 'Back-off pulling image "i": ErrImagePull: no route'),
            110,
        ),
        (False, 109, WaitingReason("ErrImagePull", "no route"), 110),
    ],
)
def test_a_failed_step_shows_its_reason_until_the_next_try(
    is_pull: bool, now: float, expected: WaitingReason, next_change: float
) -> None:
    found = failure(is_pull=is_pull)
    assert (found.shown(now), found.next_change(now)) == (expected, next_change)
    assert found.until == 110


def test_a_crash_loop_names_delay_container_and_pod() -> None:
    found = crash_loop(POD, POD.spec.containers[0], BackoffDelay(80, 0))
    message = "back-off 1m20s restarting failed container=ctr pod=pod_default(u)"
    assert found == WaitingReason("CrashLoopBackOff", message)
    assert pod_label(POD) == "pod_default(u)"
