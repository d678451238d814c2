"""CronJobs whose jobs really run."""

from collections.abc import Callable
from typing import Any


def test_jobs_are_made_by_the_clock_and_by_hand(
    any_kubectl: Any, eventually: Callable[..., Any]
) -> None:
    any_kubectl("create cronjob tick --image=host --schedule='@every 2s' -- echo tick")
    eventually(lambda: any_kubectl.json("get cronjob tick")["status"].get("lastSuccessfulTime"))
    # Of jobs that began in the same second, the one by hand might be the one too many.
    quiet = '{"spec":{"suspend":true,"successfulJobsHistoryLimit":20}}'
    any_kubectl("patch", "cronjob", "tick", "--patch", quiet)
    by_clock = [each["NAME"] for each in any_kubectl.table("get jobs")]
    assert all(name.removeprefix("tick-").isdigit() for name in by_clock)
    any_kubectl("create job by-hand --from=cronjob/tick")
    any_kubectl("wait --for=condition=complete --timeout=40s job/by-hand")
    assert any_kubectl.says("logs job/by-hand") == "tick"
    described = any_kubectl.says("describe cronjob tick")
    assert "SuccessfulCreate" in described
    assert "Saw completed job" in described
    any_kubectl("delete cronjob tick")
    # What it made goes with it.
    eventually(lambda: not any_kubectl.json("get jobs,pods")["items"])
