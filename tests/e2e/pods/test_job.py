"""Jobs with pods that really run: to their end, into failure, through the death of the server."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

KILLS = int(os.environ.get("KEDGE_E2E_JOB_KILLS", "5"))
"""How often the server is killed while jobs are at work."""
SEED = int(os.environ.get("KEDGE_E2E_SEED", "5"))


def job(name: str, script: str, *, pod: Json | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    template = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **(pod or {}),
    }
    return {
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}, **spec},
    }


def conditions(status: Json) -> dict[str, str]:
    """The reasons of those that are true."""
    return {
        each["type"]: each.get("reason", "")
        for each in status.get("conditions", ())
        if each["status"] == "True"
    }


class Jobs:
    """The jobs of one namespace."""

    def __init__(self, api: Any, namespace: str, eventually: Callable[..., Any]) -> None:
        self.api = api
        self.path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self._eventually = eventually

    def create(self, name: str, script: str, **spec: Any) -> None:
        self.api.create(self.path, job(name, script, **spec))

    def status(self, name: str) -> Json:
        found: Json = self.api.get(f"{self.path}/{name}")["status"]
        return found

    def over(self, name: str, within: float = 40.0) -> Json:
        """The status of a job when it has finished."""
        self._eventually(lambda: self.is_over(name), within)
        return self.status(name)

    def is_over(self, name: str) -> bool:
        return bool(conditions(self.status(name)).keys() & ENDS)

    def pods_of(self, name: str) -> list[Json]:
        query = f"?labelSelector=job-name={name}"
        found: list[Json] = self.api.get(self.pods + query)["items"]
        return found


ENDS = {"Complete", "Failed"}


@pytest.fixture
def jobs(api: Any, namespace: str, eventually: Callable[..., Any]) -> Jobs:
    return Jobs(api, namespace, eventually)


def test_each_pod_of_an_indexed_job_finds_its_index(jobs: Jobs, any_kubectl: Any) -> None:
    jobs.create(
        "numbered",
        'echo "$JOB_COMPLETION_INDEX on $(hostname)"',
        completions=3,
        parallelism=3,
        completionMode="Indexed",
    )
    any_kubectl("wait --for=condition=complete --timeout=40s job/numbered")
    said = any_kubectl.says("logs -l job-name=numbered --prefix=false").splitlines()
    assert sorted(said) == ["0 on numbered-0", "1 on numbered-1", "2 on numbered-2"]
    (row,) = any_kubectl.table("get jobs")
    assert (row["STATUS"], row["COMPLETIONS"]) == ("Complete", "3/3")
    assert jobs.status("numbered")["completedIndexes"] == "0-2"


def test_job_whose_pods_crash_is_given_up_after_a_pause(jobs: Jobs, any_kubectl: Any) -> None:
    jobs.create("broken", "exit 3", backoffLimit=1)
    any_kubectl("wait --for=condition=failed --timeout=40s job/broken")
    status = jobs.over("broken")
    assert conditions(status)["Failed"] == "BackoffLimitExceeded"
    assert status["failed"] == 2
    first, second = sorted(each["metadata"]["creationTimestamp"] for each in jobs.pods_of("broken"))
    # Ten seconds after the first failure, as upstream.
    assert 9 <= seconds(second) - seconds(first) <= 15
    described = any_kubectl.says("describe job broken")
    assert "BackoffLimitExceeded" in described
    assert "Job has reached the specified backoff limit" in described


def seconds(stamp: str) -> float:
    return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))


def test_exit_code_that_a_policy_names_ends_the_job_at_once(jobs: Jobs) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    jobs.create(
        "picky",
        '[ "$JOB_COMPLETION_INDEX" = 0 ] && exit 42; exec sleep 1000',
        completions=2,
        parallelism=2,
        completionMode="Indexed",
        podFailurePolicy={"rules": [rule]},
    )
    status = jobs.over("picky")
    assert conditions(status)["Failed"] == "PodFailurePolicy"
    assert status.get("active", 0) == 0
    assert status["terminating"] == 0


def test_suspended_job_stops_its_pods_and_goes_on_later(
    jobs: Jobs, any_kubectl: Any, eventually: Callable[..., Any]
) -> None:
    jobs.create("paused", "sleep 1000", completions=2, parallelism=2)
    eventually(lambda: jobs.status("paused").get("ready") == 2)
    any_kubectl('patch job paused --patch {"spec":{"suspend":true}}'.replace('"', r"\""))
    eventually(lambda: jobs.pods_of("paused") == [])
    assert conditions(jobs.status("paused")) == {"Suspended": "JobSuspended"}
    assert "startTime" not in jobs.status("paused")
    any_kubectl('patch job paused --patch {"spec":{"suspend":false}}'.replace('"', r"\""))
    eventually(lambda: jobs.status("paused").get("ready") == 2)
    assert jobs.status("paused").get("failed", 0) == 0


def test_finished_job_and_its_pods_go_when_their_time_is_up(
    jobs: Jobs, eventually: Callable[..., Any]
) -> None:
    jobs.create("fleeting", "true", ttlSecondsAfterFinished=1)
    eventually(lambda: not jobs.api.exists(f"{jobs.path}/fleeting"))
    eventually(lambda: jobs.pods_of("fleeting") == [])


@pytest.mark.skipif(
    "KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own to kill it"
)
def test_pods_are_counted_once_each_though_the_server_is_killed_again_and_again(
    own_cluster: Any, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    told = tmp_path / "told"
    told.mkdir()
    mine = Jobs(own_cluster.up("--nodes=1").api, "default", eventually)
    pod = {"volumes": [{"name": "told", "hostPath": {"path": str(told)}}]}
    mount = "volumeMounts", [{"name": "told", "mountPath": "/told"}]
    say = "echo $(hostname) >> /told/starts; sleep 0.3;"
    documents = [
        job("many", say, pod=pod, completions=40, parallelism=8),
        job(
            "half",
            f"{say} exit $((JOB_COMPLETION_INDEX % 2))",
            pod=pod,
            completions=20,
            parallelism=6,
            completionMode="Indexed",
            backoffLimitPerIndex=0,
        ),
    ]
    for document in documents:
        document["spec"]["template"]["spec"]["containers"][0][mount[0]] = mount[1]
        mine.api.create(mine.path, document)
    dice, kills = random.Random(SEED), 0
    while kills < KILLS and not (mine.is_over("many") and mine.is_over("half")):
        time.sleep(dice.uniform(0.3, 1.5))
        own_cluster.kill()
        kills += 1
        # At its own port, as it was.
        where = f"--kubeconfig={own_cluster.kubeconfig}"
        own_cluster.kedge("up", *own_cluster.which, where, "--nodes=1")
    assert kills > 1
    many, half = mine.over("many", within=90), mine.over("half", within=90)

    assert (many["succeeded"], many.get("failed", 0)) == (40, 0)
    assert conditions(many)["Complete"] == "CompletionsReached"
    assert (half["succeeded"], half["failed"]) == (10, 10)
    assert conditions(half)["Failed"] == "FailedIndexes"
    assert half["completedIndexes"] == ",".join(map(str, range(0, 20, 2)))
    assert half["failedIndexes"] == ",".join(map(str, range(1, 20, 2)))
    # As many pods as were counted: none was made in vain, and none ran twice.
    assert len(mine.pods_of("many")) == 40
    assert len(mine.pods_of("half")) == 20
    starts = Counter((told / "starts").read_text().split())
    assert len(starts) == 60
    assert set(starts.values()) == {1}
    assert not [
        each for each in mine.api.get(mine.pods)["items"] if "finalizers" in each["metadata"]
    ]
