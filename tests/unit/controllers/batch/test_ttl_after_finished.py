"""Jobs that go by themselves."""

from typing import Any

from kedge.controllers.batch.job import JobController
from kedge.controllers.batch.ttl_after_finished import TtlAfterFinishedController
from kedge.testing.controllers import ControllerHarness, workshop

JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def finished(place: ControllerHarness, **spec: Any) -> None:
    """A job that has finished."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}
    document = {"metadata": {"name": "work"}, "spec": {"template": {"spec": pod}, **spec}}
    await place.create(JOBS, document)
    (made,) = await place.pods()
    await place.end_pod(made)
    await place.pass_time(0.5)


async def is_going(place: ControllerHarness) -> bool:
    return any("deletionTimestamp" in job["metadata"] for job in await place.below(JOBS))


async def test_job_goes_when_its_time_is_up() -> None:
    async with workshop(JobController, TtlAfterFinishedController) as place:
        await finished(place, ttlSecondsAfterFinished=60)
        await place.pass_time(58)
        assert not await is_going(place)
        await place.pass_time(2)
        assert await is_going(place)


async def test_job_without_a_limit_stays() -> None:
    async with workshop(JobController, TtlAfterFinishedController) as place:
        await finished(place)
        await place.pass_time(100_000)
        assert not await is_going(place)


async def test_limit_may_be_changed_later() -> None:
    async with workshop(JobController, TtlAfterFinishedController) as place:
        await finished(place, ttlSecondsAfterFinished=60)
        await place.change(f"{JOBS}/work", {"spec": {"ttlSecondsAfterFinished": 600}})
        await place.pass_time(70)
        assert not await is_going(place)
        await place.change(f"{JOBS}/work", {"spec": {"ttlSecondsAfterFinished": 0}})
        assert await is_going(place)
