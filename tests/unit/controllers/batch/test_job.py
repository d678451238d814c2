"""Jobs from their first pod to their last condition."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.client.client import Client
from kedge.client.transport import Call, Reply, Transport
from kedge.controllers.batch.job import JobController
from kedge.controllers.shared_informers import SharedInformers
from kedge.testing.controllers import ControllerHarness, workshop

Json = dict[str, Any]

JOBS = "/apis/batch/v1/namespaces/default/jobs"
TRACKED = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


@pytest.fixture
async def place() -> AsyncIterator[ControllerHarness]:
    async with workshop(JobController) as made:
        yield made


def manifest(name: str = "work", *, restart: str = "Never", **spec: Any) -> Json:
    container = {"name": "main", "image": "host"}
    pod = {"restartPolicy": restart, "containers": [container]}
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod}, **spec}}


async def make(place: ControllerHarness, *, restart: str = "Never", **spec: Any) -> None:
    await place.create(JOBS, manifest(restart=restart, **spec))


async def status(place: ControllerHarness, name: str = "work") -> Json:
    await place.pass_time(0.2)
    found: Json = (await place.server.get(f"{JOBS}/{name}"))["status"]
    return found


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    """Status and reason, by type."""
    found = status.get("conditions", [])
    return {each["type"]: (each["status"], each.get("reason", "")) for each in found}


async def active(place: ControllerHarness) -> list[Json]:
    return [
        pod
        for pod in await place.pods()
        if "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def index(pod: Json) -> str:
    found: str = pod["metadata"]["annotations"][INDEX]
    return found


async def finish(place: ControllerHarness, *indexes: int, exit_code: int = 0) -> None:
    for pod in await active(place):
        if int(index(pod)) in indexes:
            await place.end_pod(pod, exit_code=exit_code)
    await place.pass_time(0.2)


async def end_all(place: ControllerHarness, *, exit_code: int = 0) -> None:
    for pod in await active(place):
        await place.end_pod(pod, exit_code=exit_code)
    await place.pass_time(0.2)


async def test_job_runs_as_many_pods_as_it_may_until_enough_have_succeeded(
    place: ControllerHarness,
) -> None:
    await make(place, completions=3, parallelism=2)
    first, second = await active(place)
    assert first["metadata"]["finalizers"] == [TRACKED]
    assert first["metadata"]["name"].startswith("work-")
    assert (await status(place))["active"] == 2
    await place.end_pod(first)
    await place.end_pod(second)
    now = await status(place)
    assert (now["active"], now["succeeded"]) == (1, 2)
    await end_all(place)
    now = await status(place)
    assert conditions(now) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert now["succeeded"] == 3
    assert now["completionTime"] >= now["startTime"]
    assert "active" not in now
    assert not [pod for pod in await place.pods() if pod["metadata"].get("finalizers")]
    assert ("Completed", "Job completed") in await place.events()


async def test_first_success_ends_a_job_without_completions(place: ControllerHarness) -> None:
    await make(place, parallelism=2)
    first, second = await active(place)
    await place.end_pod(first)
    assert "Complete" not in conditions(await status(place))
    assert [each["metadata"]["name"] for each in await active(place)] == [
        second["metadata"]["name"]
    ]
    await place.end_pod(second, exit_code=1)
    now = await status(place)
    assert conditions(now)["Complete"][0] == "True"
    assert (now["succeeded"], now["failed"]) == (1, 1)


async def test_failures_are_replaced_ever_more_slowly_until_there_were_too_many(
    place: ControllerHarness,
) -> None:
    await make(place, backoffLimit=2)
    for wait in (10, 20):
        await end_all(place, exit_code=1)
        assert await active(place) == []
        await place.pass_time(wait - 2)
        assert await active(place) == []
        await place.pass_time(3)
        assert len(await active(place)) == 1
    await end_all(place, exit_code=1)
    now = await status(place)
    assert conditions(now) == {
        "FailureTarget": ("True", "BackoffLimitExceeded"),
        "Failed": ("True", "BackoffLimitExceeded"),
    }
    assert now["failed"] == 3
    said = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert said in await place.events()


async def test_success_makes_earlier_failures_forgotten(place: ControllerHarness) -> None:
    await make(place, completions=3, parallelism=2)
    first, second = await active(place)
    await place.end_pod(first, exit_code=1)
    await place.pass_time(0.5)
    await place.pass_time(1)
    await place.end_pod(second)
    await place.pass_time(0.2)
    assert len(await active(place)) == 2


async def test_pods_of_a_failed_job_are_stopped_before_it_says_so(place: ControllerHarness) -> None:
    await make(place, completions=2, parallelism=2, backoffLimit=0)
    failing, running = await active(place)
    await place.run_pod(running, node="n")
    await place.end_pod(failing, exit_code=1)
    now = await status(place)
    assert conditions(now) == {"FailureTarget": ("True", "BackoffLimitExceeded")}
    assert (now["terminating"], now["failed"]) == (1, 2)
    await place.bury(running)
    now = await status(place)
    assert conditions(now)["Failed"] == ("True", "BackoffLimitExceeded")
    assert (now["terminating"], now["failed"]) == (0, 2)


async def test_restarts_in_place_count_towards_the_limit(place: ControllerHarness) -> None:
    await make(place, restart="OnFailure", backoffLimit=3)
    (pod,) = await active(place)
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
    ran = {"name": "main", "image": "host", "imageID": "", "ready": True, "restartCount": 3}
    await place.change(path, {"status": {"phase": "Running", "containerStatuses": [ran]}})
    assert conditions(await status(place))["FailureTarget"][1] == "BackoffLimitExceeded"


async def test_deadline_ends_a_job(place: ControllerHarness) -> None:
    await make(place, activeDeadlineSeconds=30)
    await place.pass_time(29)
    assert len(await active(place)) == 1
    await place.pass_time(1.2)
    assert await active(place) == []
    assert conditions(await status(place))["Failed"] == ("True", "DeadlineExceeded")


async def test_suspended_job_rests_and_its_time_begins_anew(place: ControllerHarness) -> None:
    await make(place, parallelism=2, completions=2, activeDeadlineSeconds=100)
    started = (await status(place))["startTime"]
    await place.pass_time(60)
    await place.change(f"{JOBS}/work", {"spec": {"suspend": True}})
    assert await place.pods() == []
    now = await status(place)
    assert conditions(now) == {"Suspended": ("True", "JobSuspended")}
    assert "startTime" not in now
    assert "failed" not in now
    await place.pass_time(200)
    await place.change(f"{JOBS}/work", {"spec": {"suspend": False}})
    now = await status(place)
    assert conditions(now) == {"Suspended": ("False", "JobResumed")}
    assert now["startTime"] > started
    assert now["active"] == 2
    reasons = [reason for reason, _ in await place.events()]
    assert "Suspended" in reasons
    assert "Resumed" in reasons


async def test_indexed_pods_know_their_index(place: ControllerHarness) -> None:
    await make(place, completions=3, parallelism=3, completionMode="Indexed")
    pods = await active(place)
    assert sorted(map(index, pods)) == ["0", "1", "2"]
    pod = next(each for each in pods if index(each) == "1")
    assert pod["metadata"]["labels"][INDEX] == "1"
    assert pod["metadata"]["name"].startswith("work-1-")
    assert pod["spec"]["hostname"] == "work-1"
    (variable,) = pod["spec"]["containers"][0]["env"]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{INDEX}']"


async def test_completed_indexes_are_listed_and_not_run_again(place: ControllerHarness) -> None:
    await make(place, completions=5, parallelism=5, completionMode="Indexed")
    await finish(place, 0, 2, 3, 4)
    now = await status(place)
    assert (now["completedIndexes"], now["succeeded"]) == ("0,2-4", 4)
    assert list(map(index, await active(place))) == ["1"]
    await finish(place, 1)
    assert (await status(place))["completedIndexes"] == "0-4"


async def test_indexed_job_shrinks_and_grows(place: ControllerHarness) -> None:
    await make(place, completions=4, parallelism=4, completionMode="Indexed")
    await finish(place, 0, 3)
    await place.change(f"{JOBS}/work", {"spec": {"completions": 2, "parallelism": 2}})
    await place.pass_time(0.2)
    assert list(map(index, await active(place))) == ["1"]
    now = await status(place)
    assert (now["completedIndexes"], now["succeeded"]) == ("0", 1)
    await place.change(f"{JOBS}/work", {"spec": {"completions": 3, "parallelism": 3}})
    assert sorted(map(index, await active(place))) == ["1", "2"]


async def test_indexes_fail_one_by_one(place: ControllerHarness) -> None:
    await make(
        place, completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=1
    )
    await finish(place, 0)
    await finish(place, 1, exit_code=1)
    # The failed pod is kept until another has taken over what it knows.
    assert len([pod for pod in await place.pods() if pod["metadata"].get("finalizers")]) == 1
    assert "failed" not in await status(place)
    await place.pass_time(11)
    (again,) = await active(place)
    assert again["metadata"]["annotations"][FAILURES] == "1"
    await finish(place, 1, exit_code=1)
    now = await status(place)
    assert conditions(now)["Failed"] == ("True", "FailedIndexes")
    assert (now["completedIndexes"], now["failedIndexes"]) == ("0", "1")
    assert (now["succeeded"], now["failed"]) == (1, 2)


async def test_too_many_failed_indexes_end_the_job(place: ControllerHarness) -> None:
    await make(
        place,
        completions=4,
        parallelism=4,
        completionMode="Indexed",
        backoffLimitPerIndex=0,
        maxFailedIndexes=1,
    )
    await finish(place, 0, exit_code=1)
    assert (await status(place))["active"] == 3
    await finish(place, 2, exit_code=1)
    now = await status(place)
    assert conditions(now)["Failed"] == ("True", "MaxFailedIndexesExceeded")
    assert now["failedIndexes"] == "0,2"


async def test_policy_fails_the_job_at_once(place: ControllerHarness) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    await make(place, parallelism=2, completions=2, podFailurePolicy={"rules": [rule]})
    pod = (await active(place))[0]
    await place.end_pod(pod, exit_code=42)
    now = await status(place)
    assert conditions(now)["FailureTarget"] == ("True", "PodFailurePolicy")
    name = pod["metadata"]["name"]
    message = next(each["message"] for each in now["conditions"])
    assert message == (
        f"Container main for pod default/{name} failed with exit code 42 "
        "matching FailJob rule at index 0"
    )


async def test_ignored_failures_are_replaced_and_not_counted(place: ControllerHarness) -> None:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}
    await make(place, backoffLimit=0, podFailurePolicy={"rules": [rule]})
    await end_all(place, exit_code=7)
    await place.pass_time(11)
    assert len(await active(place)) == 1
    assert "failed" not in await status(place)
    await end_all(place)
    assert "Complete" in conditions(await status(place))


async def test_success_policy_ends_the_job_early(place: ControllerHarness) -> None:
    rules = [{"succeededIndexes": "1-2", "succeededCount": 1}]
    await make(
        place,
        completions=4,
        parallelism=4,
        completionMode="Indexed",
        successPolicy={"rules": rules},
    )
    await finish(place, 0)
    assert "SuccessCriteriaMet" not in conditions(await status(place))
    await finish(place, 2)
    now = await status(place)
    assert conditions(now)["Complete"] == ("True", "SuccessPolicy")
    assert (now["completedIndexes"], now["succeeded"]) == ("0,2", 2)
    assert "failed" not in now


async def test_replacement_waits_until_a_pod_has_left_if_asked_to(place: ControllerHarness) -> None:
    await make(place, podReplacementPolicy="Failed")
    (pod,) = await active(place)
    await place.run_pod(pod, node="n")
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    await place.remove(path)
    now = await status(place)
    assert now["terminating"] == 1
    assert await active(place) == []
    await place.end_pod(pod, exit_code=1)
    await place.bury(pod)
    await place.pass_time(11)
    assert len(await active(place)) == 1
    assert (await status(place))["failed"] == 1


async def test_matching_pods_are_adopted_and_counted(place: ControllerHarness) -> None:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}
    orphan = {"metadata": {"name": "stray", "labels": {"app": "x"}}, "spec": spec}
    await place.create("/api/v1/namespaces/default/pods", orphan)
    document = manifest(manualSelector=True, selector={"matchLabels": {"app": "x"}})
    document["spec"]["template"]["metadata"] = {"labels": {"app": "x"}}
    await place.create(JOBS, document)
    (pod,) = await place.pods()
    assert pod["metadata"]["ownerReferences"][0]["name"] == "work"
    assert pod["metadata"]["finalizers"] == [TRACKED]
    await place.end_pod(pod)
    assert (await status(place))["succeeded"] == 1


async def test_job_of_another_controller_is_left_alone(place: ControllerHarness) -> None:
    await make(place, managedBy="example.com/other")
    await place.pass_time(1)
    assert await place.pods() == []
    assert await status(place) == {}


async def test_pods_of_an_orphaned_job_are_set_free(place: ControllerHarness) -> None:
    await make(place)
    await place.remove(f"{JOBS}/work", {"propagationPolicy": "Background"})
    (pod,) = await place.pods()
    assert "finalizers" not in pod["metadata"]


async def test_counting_that_was_interrupted_is_taken_up_again() -> None:
    async with workshop() as place:
        made = await place.create(JOBS, manifest(completions=3, parallelism=3))
        pods = []
        for n in range(3):
            document = {
                "metadata": {
                    "name": f"p{n}",
                    "labels": made["spec"]["template"]["metadata"]["labels"],
                    # The first was set free before the server died, the others were not.
                    "finalizers": [TRACKED] if n else [],
                    "ownerReferences": [
                        {
                            "apiVersion": "batch/v1",
                            "kind": "Job",
                            "name": "work",
                            "uid": made["metadata"]["uid"],
                            "controller": True,
                        }
                    ],
                },
                "spec": made["spec"]["template"]["spec"],
            }
            pod = await place.create("/api/v1/namespaces/default/pods", document)
            await place.end_pod(pod)
            pods.append(pod["metadata"]["uid"])
        # The status names two of them, and the server died before they became numbers.
        named = {"startTime": "2030-01-01T00:00:00Z", "uncountedTerminatedPods": {}}
        named["uncountedTerminatedPods"] = {"succeeded": pods[:2]}
        await place.change(f"{JOBS}/work/status", {"status": named})
        await restart(place)
        now = await status(place)
        assert now["succeeded"] == 3
        assert "Complete" in conditions(now)


class Mortal:
    """A way to the server that ends after some writes, the last of which is never answered."""

    def __init__(self, inner: Transport, writes: int) -> None:
        self._inner = inner
        self._writes = writes
        self.stream = inner.stream
        self.close = inner.close

    async def send(self, call: Call) -> Reply:
        if call.method != "GET" and "/events" not in call.path:
            self._writes -= 1
        if self._writes >= 0:
            reply = await self._inner.send(call)
        if self._writes <= 0:
            await asyncio.Event().wait()
        return reply


@pytest.mark.parametrize("writes", range(1, 18))
async def test_death_after_any_write_changes_no_count(writes: int) -> None:
    async with workshop() as place:
        await place.create(JOBS, manifest(completions=3, parallelism=2, backoffLimit=5))
        mortal = Mortal(place.server.client._transport, writes)
        await begin(place, Client(mortal))
        ended = await end_pods(place, rounds=3, first_fails=True)
        await begin(place, place.server.client)
        await end_pods(place, rounds=4, first_fails=not ended)
        now = await status(place)
        assert (now.get("succeeded"), now.get("failed")) == (3, 1)
        assert conditions(now)["Complete"][0] == "True"
        assert len(await place.pods()) == 4


async def end_pods(place: ControllerHarness, *, rounds: int, first_fails: bool) -> int:
    """Let pods end as they come, and say how many there were."""
    ended = 0
    for _ in range(rounds):
        for pod in await active(place):
            await place.end_pod(pod, exit_code=1 if first_fails and not ended else 0)
            ended += 1
            # A moment later than the one before it: a success does not forgive what comes after.
            await place.pass_time(1)
        await place.pass_time(11)
    return ended


async def restart(place: ControllerHarness) -> None:
    await begin(place, place.server.client)


async def begin(place: ControllerHarness, client: Client) -> None:
    """A controller that knows nothing but what the server has."""
    shared = SharedInformers(client, place.clock)
    controller = JobController(client, shared, place.clock)
    place.server.start(shared.run())
    await shared.synced()
    place.server.start(controller.run())
    await place.settle()
