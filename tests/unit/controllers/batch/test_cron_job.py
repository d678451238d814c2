"""CronJobs, and the jobs they make as time passes. It is midnight, the first of January 2030."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.controllers.batch.cron_job import CronJobController
from kedge.controllers.batch.job import JobController
from kedge.controllers.shared_informers import SharedInformers
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]

BATCH = "/apis/batch/v1/namespaces/default"
CRON = f"{BATCH}/cronjobs/tick"
MIDNIGHT = 1893456000 // 60
"""Minutes since 1970."""


@pytest.fixture
async def place() -> AsyncIterator[ControllerHarness]:
    async with workshop(CronJobController, JobController) as made:
        yield made


async def make(place: ControllerHarness, schedule: str = "* * * * *", **spec: Any) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}
    job = {"spec": {"template": {"spec": pod}}}
    full = {"schedule": schedule, "jobTemplate": job, **spec}
    await place.create(f"{BATCH}/cronjobs", {"metadata": {"name": "tick"}, "spec": full})


async def jobs(place: ControllerHarness) -> list[str]:
    return [each["metadata"]["name"] for each in await place.below(f"{BATCH}/jobs")]


async def status(place: ControllerHarness) -> Json:
    found: Json = (await place.server.get(CRON))["status"]
    return found


async def finish(place: ControllerHarness, *, exit_code: int = 0) -> None:
    """Let everything that runs end."""
    for pod in await place.pods():
        if pod["status"].get("phase") == "Pending":
            await place.end_pod(pod, exit_code=exit_code)
    await place.pass_time(0.3)


async def test_job_is_made_when_it_is_due_and_named_after_its_minute(
    place: ControllerHarness,
) -> None:
    await make(place)
    await place.pass_time(59)
    assert await jobs(place) == []
    await place.pass_time(1.2)
    assert await jobs(place) == [f"tick-{MIDNIGHT + 1}"]
    (job,) = await place.below(f"{BATCH}/jobs")
    stamp = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert stamp == "2030-01-01T00:01:00Z"
    assert job["metadata"]["ownerReferences"][0]["name"] == "tick"
    now = await status(place)
    assert now["lastScheduleTime"] == "2030-01-01T00:01:00Z"
    assert [each["name"] for each in now["active"]] == [f"tick-{MIDNIGHT + 1}"]
    assert ("SuccessfulCreate", f"Created job tick-{MIDNIGHT + 1}") in await place.events()


async def test_success_is_remembered(place: ControllerHarness) -> None:
    await make(place)
    await place.pass_time(61)
    await finish(place)
    now = await status(place)
    assert "active" not in now
    assert now["lastSuccessfulTime"].startswith("2030-01-01T00:01:0")
    name = f"tick-{MIDNIGHT + 1}"
    said = ("SawCompletedJob", f"Saw completed job: {name}, condition: Complete")
    assert said in await place.events()


async def test_jobs_may_run_side_by_side(place: ControllerHarness) -> None:
    await make(place)
    await place.pass_time(61)
    await place.pass_time(60)
    assert len((await status(place))["active"]) == 2


async def test_forbidden_job_waits_for_the_one_before(place: ControllerHarness) -> None:
    await make(place, concurrencyPolicy="Forbid")
    await place.pass_time(61)
    await place.pass_time(60)
    assert await jobs(place) == [f"tick-{MIDNIGHT + 1}"]
    assert "JobAlreadyActive" in [reason for reason, _ in await place.events()]
    await finish(place)
    assert await jobs(place) == [f"tick-{MIDNIGHT + 1}", f"tick-{MIDNIGHT + 2}"]


async def test_job_that_still_runs_is_replaced(place: ControllerHarness) -> None:
    await make(place, concurrencyPolicy="Replace")
    await place.pass_time(61)
    await place.pass_time(60)
    assert await jobs(place) == [f"tick-{MIDNIGHT + 2}"]
    assert [each["name"] for each in (await status(place))["active"]] == [f"tick-{MIDNIGHT + 2}"]


async def test_suspended_one_makes_nothing(place: ControllerHarness) -> None:
    await make(place, suspend=True)
    await place.pass_time(300)
    assert await jobs(place) == []


async def test_only_so_many_finished_jobs_are_kept(place: ControllerHarness) -> None:
    await make(place, successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    await place.pass_time(61)
    await finish(place)
    await place.pass_time(60)
    await finish(place)
    assert await jobs(place) == [f"tick-{MIDNIGHT + 2}"]
    await place.change(CRON, {"spec": {"jobTemplate": {"spec": {"backoffLimit": 0}}}})
    await place.pass_time(60)
    await finish(place, exit_code=1)
    assert await jobs(place) == [f"tick-{MIDNIGHT + 2}"]
    assert ("SuccessfulDelete", f"Deleted job tick-{MIDNIGHT + 3}") in await place.events()


async def test_fewer_finished_jobs_than_may_be_kept_are_all_kept(place: ControllerHarness) -> None:
    await make(place, successfulJobsHistoryLimit=3)
    for _ in range(2):
        await place.pass_time(61)
        await finish(place)
    await place.pass_time(1)
    assert len(await jobs(place)) == 2
    assert not [reason for reason, _ in await place.events() if reason == "SuccessfulDelete"]


async def test_a_deadline_of_all_time_is_no_deadline(place: ControllerHarness) -> None:
    await make(place, startingDeadlineSeconds=2**63 - 1)
    await place.pass_time(61)
    assert len(await jobs(place)) == 1


async def test_schedule_is_read_in_its_time_zone(place: ControllerHarness) -> None:
    await make(place, "30 9 * * *", timeZone="Asia/Kolkata")
    await place.pass_time(4 * 3600 + 1)
    (job,) = await place.below(f"{BATCH}/jobs")
    stamp = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert stamp == "2030-01-01T09:30:00+05:30"


async def test_new_schedule_makes_up_for_nothing(place: ControllerHarness) -> None:
    await make(place, "0 12 * * *")
    await place.pass_time(3605)
    await place.change(CRON, {"spec": {"schedule": "30 * * * *"}})
    assert await jobs(place) == []
    await place.pass_time(1800)
    assert await jobs(place) == [f"tick-{MIDNIGHT + 90}"]


async def test_job_that_was_deleted_is_no_longer_active(place: ControllerHarness) -> None:
    await make(place, "@hourly")
    await place.pass_time(3601)
    await place.remove(f"{BATCH}/jobs/tick-{MIDNIGHT + 60}", {"propagationPolicy": "Background"})
    assert "active" not in await status(place)
    said = ("MissingJob", f"Active job went missing: tick-{MIDNIGHT + 60}")
    assert said in await place.events()


async def wake(place: ControllerHarness) -> None:
    """Controllers that were away, and know nothing but what the server has."""
    shared = SharedInformers(place.server.client, place.clock)
    kinds = (CronJobController, JobController)
    made = [kind(place.server.client, shared, place.clock) for kind in kinds]
    place.server.start(shared.run())
    await shared.synced()
    for each in made:
        place.server.start(each.run())
    await place.settle()


async def test_of_many_missed_moments_the_last_is_made_up_for() -> None:
    async with workshop() as place:
        await make(place)
        await place.pass_time(3 * 3600 + 20)
        await wake(place)
        assert await jobs(place) == [f"tick-{MIDNIGHT + 180}"]
        assert "TooManyMissedTimes" in [reason for reason, _ in await place.events()]


async def test_what_is_too_late_is_not_made_up_for() -> None:
    async with workshop() as place:
        await make(place, "0 * * * *", startingDeadlineSeconds=30)
        await place.pass_time(3 * 3600 + 40)
        await wake(place)
        assert await jobs(place) == []


async def test_job_of_an_interrupted_start_is_taken_for_what_it_is() -> None:
    async with workshop() as place:
        await make(place)
        made = await place.server.get(CRON)
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "controller": True}
        name = f"tick-{MIDNIGHT + 1}"
        meta = {"name": name, "ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}]}
        # The server died after it had made the job and before it could say so.
        job = {"metadata": meta, "spec": made["spec"]["jobTemplate"]["spec"]}
        await place.create(f"{BATCH}/jobs", job)
        await place.pass_time(70)
        await wake(place)
        assert await jobs(place) == [name]
        now = await status(place)
        assert [each["name"] for each in now["active"]] == [name]
        assert now["lastScheduleTime"] == "2030-01-01T00:01:00Z"
