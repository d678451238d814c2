"""The life of a simulated pod, moment by moment."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.api.core_v1.simulation import own
from kedge.machinery.durations import format_time, parse_time
from kedge.simulated_nodes.pod_life import LifeStep, PodLife, PodPlace, adopted, advance
from kedge.testing.pods import new_pod

NOW = parse_time("2030-01-01T00:00:00Z").timestamp()
PREFIX = "simulation.kedge.dev/"


class Story:
    """A pod whose life a test follows; the API has each status at once."""

    def __init__(
        self,
        annotations: Mapping[str, str] | None = None,
        *,
        node: Mapping[str, str] | None = None,
        owner: str = "",
        **spec: Any,
    ) -> None:
        owners = [{"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o"}] if owner else []
        marks = {PREFIX + name: value for name, value in (annotations or {}).items()}
        meta = {"uid": "u", "annotations": marks, "ownerReferences": owners}
        self.pod: Pod = new_pod(metadata=meta, spec={"nodeName": "n", **spec})
        of_node = own({PREFIX + name: value for name, value in (node or {}).items()})
        self.place = PodPlace("198.18.0.1", "198.18.0.9", of_node)
        self.life = PodLife()
        self.step: LifeStep

    def at(self, seconds: float) -> str:
        """Go on to that moment, and return the state of the pod in one line."""
        self.step = advance(self.life, self.pod, self.place, NOW + seconds)
        self.life = self.step.life
        self.pod = replace(self.pod, status=self.step.status)
        return self.shown

    @property
    def shown(self) -> str:
        status = self.step.status
        statuses = (*status.initContainerStatuses, *status.containerStatuses)
        ready = {each.type: each.status for each in status.conditions}["Ready"]
        states = " ".join(f"{each.name}={state(each)}" for each in statuses)
        return f"{status.phase} ready={ready} {states}"

    @property
    def wake(self) -> float | None:
        """Seconds from the beginning until something happens by itself."""
        return None if self.step.wake is None else round(self.step.wake - NOW, 3)

    def delete(self, seconds: float, grace: int = 30) -> None:
        """Delete the pod at that moment."""
        end = parse_time("2030-01-01T00:00:00Z").timestamp() + seconds + grace
        moment = format_time(datetime.fromtimestamp(end, UTC))
        meta = replace(
            self.pod.metadata, deletionTimestamp=moment, deletionGracePeriodSeconds=grace
        )
        self.pod = replace(self.pod, metadata=meta)


def state(status: ContainerStatus) -> str:
    found = status.state
    again = f"#{status.restartCount}" if status.restartCount else ""
    if found.running is not None:
        return f"running{again}"
    if found.terminated is not None:
        return f"{found.terminated.reason}({found.terminated.exitCode}){again}"
    assert found.waiting is not None
    return f"{found.waiting.reason}{again}"


CONTAINER = {"name": "ctr", "image": "image"}


def test_a_pod_without_annotations_runs_and_is_ready_at_once() -> None:
    story = Story()
    assert story.at(0) == "Running ready=True ctr=running"
    assert story.wake is None
    status = story.step.status
    assert (status.podIP, status.hostIP) == ("198.18.0.9", "198.18.0.1")
    assert status.startTime == "2030-01-01T00:00:00Z"


def test_a_life_at_rest_is_the_same_and_goes_on() -> None:
    story = Story({"run-for": "60s"}, restartPolicy="Never")
    story.at(0)
    assert story.life.observed.by_name
    rested = story.life.at_rest()
    assert rested == story.life
    assert not vars(rested.observed)
    assert rested.starts is Story().life.starts
    story.life = rested
    assert story.at(61) == "Succeeded ready=False ctr=Completed(0)"


def test_a_delay_is_spent_creating_the_container() -> None:
    story = Story({"start-delay": "5s"})
    assert story.at(0) == "Pending ready=False ctr=ContainerCreating"
    assert story.wake == 5
    assert story.at(4.9) == "Pending ready=False ctr=ContainerCreating"
    assert story.at(5) == "Running ready=True ctr=running"


def test_a_delay_of_the_node_counts_for_its_pods() -> None:
    story = Story(node={"start-delay": "5s"})
    assert story.at(0) == "Pending ready=False ctr=ContainerCreating"


def test_a_container_is_ready_some_time_after_its_start() -> None:
    story = Story({"ready-delay": "3s"})
    assert story.at(0) == "Running ready=False ctr=running"
    assert story.wake == 3
    assert story.at(3) == "Running ready=True ctr=running"


def test_a_container_may_never_be_ready() -> None:
    story = Story({"ready-delay": "never"})
    assert story.at(0) == "Running ready=False ctr=running"
    assert story.wake is None


def test_init_containers_come_first() -> None:
    story = Story({"run-for.setup": "2s"}, initContainers=[{"name": "setup", "image": "i"}])
    assert story.at(0) == "Pending ready=False setup=running ctr=PodInitializing"
    assert story.wake == 2
    assert story.at(2) == "Running ready=True setup=Completed(0) ctr=running"


def test_a_failed_init_container_is_tried_again() -> None:
    story = Story({"exit-code.setup": "4"}, initContainers=[{"name": "setup", "image": "i"}])
    assert story.at(0) == "Pending ready=False setup=CrashLoopBackOff#1 ctr=PodInitializing"


def test_a_sidecar_runs_beside_the_main_container() -> None:
    side = {"name": "side", "image": "i", "restartPolicy": "Always"}
    story = Story(initContainers=[side])
    assert story.at(0) == "Running ready=True side=running ctr=running"


def test_a_pod_of_a_job_completes() -> None:
    story = Story(owner="Job", restartPolicy="Never")
    assert story.at(0) == "Running ready=True ctr=running"
    assert story.wake == 1
    assert story.at(1) == "Succeeded ready=False ctr=Completed(0)"
    assert story.step.is_over
    assert story.wake is None


def test_an_exit_code_fails_a_pod_that_runs_once() -> None:
    story = Story({"run-for": "2s", "exit-code": "3"}, restartPolicy="Never")
    story.at(0)
    assert story.at(2) == "Failed ready=False ctr=Error(3)"


def test_a_container_that_fails_at_once_loops_with_back_off() -> None:
    story = Story({"exit-code": "1"})
    assert story.at(0) == "Running ready=False ctr=CrashLoopBackOff#1"
    assert story.wake == 10
    assert story.at(10) == "Running ready=False ctr=CrashLoopBackOff#2"
    assert story.wake == 30


def test_a_container_recovers_after_its_failures() -> None:
    story = Story({"exit-code": "1", "failures": "2"})
    story.at(0)
    assert story.at(10) == "Running ready=True ctr=running#2"
    assert story.wake is None


def test_a_container_is_killed_for_its_memory() -> None:
    story = Story({"run-for": "1s", "exit-reason": "OOMKilled"}, restartPolicy="Never")
    story.at(0)
    assert story.at(1) == "Failed ready=False ctr=OOMKilled(137)"


def test_a_termination_message_is_shown() -> None:
    story = Story({"exit-code": "1", "exit-message": "no disk"}, restartPolicy="Never")
    story.at(0)
    ended = story.step.status.containerStatuses[0].state.terminated
    assert ended is not None
    assert ended.message == "no disk"


def test_an_image_cannot_be_pulled_and_then_it_can() -> None:
    story = Story({"image-error": "not found", "failures": "1"})
    assert story.at(0) == "Pending ready=False ctr=ErrImagePull"
    assert [each.message for each in story.step.events] == [
        'Failed to pull image "image": not found',
        "Error: ErrImagePull",
    ]
    assert story.at(5) == "Pending ready=False ctr=ImagePullBackOff"
    assert story.wake == 10
    assert story.at(10) == "Running ready=True ctr=running"


def test_a_deleted_pod_ends_after_its_delay() -> None:
    story = Story({"stop-delay": "4s"})
    story.at(0)
    story.delete(10)
    assert story.at(10) == "Running ready=True ctr=running"
    assert (story.wake, story.step.is_over) == (14, False)
    story.at(14)
    assert story.step.is_over
    assert state(story.step.status.containerStatuses[0]) == "Completed(0)"


@pytest.mark.parametrize(("grace", "end"), [(2, 12), (0, 11)])
def test_a_container_that_ends_too_late_is_killed(grace: int, end: int) -> None:
    story = Story({"stop-delay": "1m"})
    story.at(0)
    story.delete(10, grace)
    story.at(10)
    assert story.wake == end
    story.at(end)
    assert state(story.step.status.containerStatuses[0]) == "Error(137)"


def test_a_grace_period_can_be_shortened() -> None:
    story = Story({"stop-delay": "1h"})
    story.at(0)
    story.delete(10, 600)
    story.at(10)
    assert story.wake == 610
    story.delete(20, 5)
    story.at(20)
    assert story.wake == 25


def test_sidecars_end_after_the_main_container() -> None:
    side = {"name": "side", "image": "i", "restartPolicy": "Always"}
    story = Story({"stop-delay.ctr": "3s"}, initContainers=[side])
    story.at(0)
    story.delete(10)
    assert story.at(10) == "Running ready=True side=running ctr=running"
    story.at(13)
    assert story.step.is_over


def test_a_deadline_ends_a_pod() -> None:
    story = Story(activeDeadlineSeconds=60)
    story.at(0)
    assert story.wake == 60
    story.at(60)
    assert (story.step.status.phase, story.step.status.reason) == ("Failed", "DeadlineExceeded")


def test_a_pod_on_the_network_of_its_node_has_its_address() -> None:
    story = Story(hostNetwork=True)
    story.at(0)
    assert story.step.status.podIP == "198.18.0.1"


def test_a_status_that_did_not_change_is_equal() -> None:
    story = Story()
    story.at(0)
    first = story.step.status
    story.at(100)
    assert story.step.status == first


def test_a_life_goes_on_after_a_restart_of_the_server() -> None:
    story = Story({"run-for": "1m", "exit-code": "1"})
    story.at(0)
    before = story.step.status
    story.life = adopted(story.pod)
    story.at(30)
    assert story.step.status == before
    assert story.wake == 60
    assert story.at(60) == "Running ready=True ctr=running#1"


def test_a_pod_that_restarts_all_containers_for_ever_does_not_hold_the_process() -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
    once = {**CONTAINER, "restartPolicy": "Never", "restartPolicyRules": [rule]}
    story = Story({"exit-code": "1"}, containers=[once], restartPolicy="Never")
    story.at(0)
    assert story.wake == 1
