from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace as changed

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import ContainerStatus, PodStatus, ResourceStatus
from kedge.node.pod import labels
from kedge.node.pod.plan import ProbeVerdicts
from kedge.node.pod.runtime_cache import PodRuntimeState, pod_runtime_state
from kedge.node.pod.status.status import StatusInput, final_status, pod_status, rejected_status
from kedge.node.pod.termination import PodTermination
from kedge.node.pod.waiting import WaitingReason
from kedge.node.runtime.runtime import PodSandbox, RunState, RuntimeContainer
from kedge.testing.pods import new_pod

NOW = datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
SECOND = 10**9
BOX = PodSandbox(id="s", namespace="default", name="pod", uid="u", ips=("10.0.0.7",))


def pod(**parts: Any) -> Pod:
    return new_pod(metadata={"uid": "u", "generation": 3}, **parts)


def record(
    of: Pod, name: str = "ctr", state: RunState = RunState.RUNNING, **fields: Any
) -> RuntimeContainer:
    everybody = (*of.spec.containers, *of.spec.initContainers, *of.spec.ephemeralContainers)
    spec = next(c for c in everybody if c.name == name)
    made: dict[str, Any] = {
        "id": f"{name}-0",
        "sandbox": "s",
        "name": name,
        "state": state,
        "started_at": 1_893_456_000 * SECOND,
        "annotations": labels.container_annotations(of, spec, "docker.io/image", "image@sha256:1"),
        "groups": (1, 2),
        "user": 5,
        "group": 6,
    }
    if state is RunState.EXITED:
        made["finished_at"] = 1_893_456_009 * SECOND
    return RuntimeContainer(**(made | fields))


def seen(*records: RuntimeContainer) -> PodRuntimeState:
    return pod_runtime_state([BOX], records)


def status_of(of: Pod, *records: RuntimeContainer, **facts: Any) -> PodStatus:
    known = facts.pop("observed", None) or seen(*records)
    return pod_status(of, StatusInput(now=NOW, observed=known, **facts))


def only(status: PodStatus) -> ContainerStatus:
    (container,) = status.containerStatuses
    return container


def test_a_pod_that_nothing_was_done_for_waits() -> None:
    status = status_of(pod(), observed=pod_runtime_state([], []), host_ips=["192.168.0.1"])
    assert status.phase == "Pending"
    assert status.startTime == "2030-01-01T00:01:00Z"
    assert status.hostIP == "192.168.0.1"
    assert status.podIP == ""
    waiting = only(status).state.waiting
    assert waiting is not None
    assert waiting.reason == "ContainerCreating"
    assert only(status).started is False
    conditions = {c.type: c.status for c in status.conditions}
    assert conditions == {
        "PodReadyToStartContainers": "False",
        "Initialized": "True",
        "Ready": "False",
        "ContainersReady": "False",
        "PodScheduled": "True",
    }
    assert {c.observedGeneration for c in status.conditions} == {3}


def test_a_status_that_the_api_gives_back_is_no_news() -> None:
    of = pod()
    for status in (
        status_of(of, observed=pod_runtime_state([], [])),
        status_of(of, record(of, groups=[1, 2])),
        final_status(
            of, status_of(of, record(of, state=RunState.EXITED, groups=[1, 2]), terminal=True)
        ),
    ):
        stored = RESOURCE.to_document(changed(of, status=status))
        assert RESOURCE.from_document(stored).status == status
        assert "initContainerStatuses" not in stored["status"]
        assert "volumeMounts" not in stored["status"]["containerStatuses"][0]


def test_a_running_container_is_described() -> None:
    of = pod(container={"resources": {"requests": {"cpu": "1"}}})
    status = status_of(of, record(of))
    container = only(status)
    assert status.podIP == "10.0.0.7"
    assert container.containerID == "kedge://ctr-0"
    assert container.image == "docker.io/image"
    assert container.imageID == "image@sha256:1"
    assert container.state.running is not None
    assert container.state.running.startedAt == "2030-01-01T00:00:00Z"
    assert (container.ready, container.started) == (True, True)
    assert str(container.allocatedResources["cpu"]) == "1"
    assert container.user is not None
    assert container.user.linux is not None
    assert list(container.user.linux.supplementalGroups) == [1, 2]


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    of = pod()
    first = status_of(of, observed=pod_runtime_state([], []))
    later = StatusInput(
        now=datetime(2030, 1, 1, 0, 5, tzinfo=UTC), observed=seen(record(of)), previous=first
    )
    times = {c.type: c.lastTransitionTime for c in pod_status(of, later).conditions}
    assert times["PodScheduled"] == "2030-01-01T00:01:00Z"
    assert times["Ready"] == "2030-01-01T00:05:00Z"


def test_the_last_state_is_that_of_the_container_before() -> None:
    of = pod()
    old = record(of, state=RunState.EXITED, exit_code=2)
    new = record(of, id="ctr-1", attempt=1)
    container = only(status_of(of, old, new))
    assert container.restartCount == 1
    assert container.lastState.terminated is not None
    assert container.lastState.terminated.exitCode == 2
    assert container.lastState.terminated.containerID == "kedge://ctr-0"


def test_a_container_that_waits_shows_why_and_how_it_ended() -> None:
    of = pod()
    ended = record(of, state=RunState.EXITED, exit_code=137, reason="OOMKilled")
    waiting = {"ctr": WaitingReason("CrashLoopBackOff", "back-off 10s")}
    container = only(status_of(of, ended, waiting=waiting))
    assert container.state.waiting is not None
    assert container.state.waiting.reason == "CrashLoopBackOff"
    assert container.lastState.terminated is not None
    assert container.lastState.terminated.reason == "OOMKilled"
    deleted = changed(of, metadata=changed(of.metadata, deletionTimestamp="2030-01-01T00:01:30Z"))
    container = only(status_of(deleted, ended, waiting=waiting))
    assert container.state.terminated is not None, "a pod that goes waits for nothing"


def test_readiness_needs_the_probes() -> None:
    probe = {"exec": {"command": ["x"]}}
    of = pod(container={"readinessProbe": probe, "startupProbe": probe})
    running = record(of)
    assert only(status_of(of, running)).started is False
    started = ProbeVerdicts(startup={"ctr-0": True})
    assert (only(status_of(of, running, verdicts=started)).started) is True
    assert (only(status_of(of, running, verdicts=started)).ready) is False
    ready = ProbeVerdicts(startup={"ctr-0": True}, readiness={"ctr-0": True})
    assert only(status_of(of, running, verdicts=ready)).ready is True


def test_messages_of_many_containers_share_the_room() -> None:
    names = [f"c{i}" for i in range(12)]
    of = pod(spec={"containers": [{"name": name, "image": "i"} for name in names]})
    records = [record(of, name, RunState.EXITED) for name in names]
    status = status_of(of, *records, messages={r.id: "é" * 4000 for r in records})
    state = status.containerStatuses[0].state.terminated
    assert state is not None
    assert len(state.message.encode()) == 1024


def test_a_pod_is_not_called_failed_while_something_runs() -> None:
    of = pod()
    before = PodStatus(phase="Running")
    late = PodTermination(30, "DeadlineExceeded", "too long")
    status = status_of(of, record(of), termination=late, previous=before)
    assert (status.phase, status.reason) == ("Running", "")
    ended = record(of, state=RunState.EXITED, exit_code=143)
    status = status_of(of, ended, termination=late, previous=before, terminal=True)
    assert (status.phase, status.reason, status.message) == (
        "Failed",
        "DeadlineExceeded",
        "too long",
    )


def test_a_pod_does_not_come_back_from_its_end() -> None:
    of = pod()
    of = changed(of, status=PodStatus(phase="Failed", reason="Evicted"))
    status = status_of(of, record(of))
    assert (status.phase, status.reason) == ("Failed", "Evicted")


def test_an_ended_pod_keeps_its_address() -> None:
    of = pod()
    before = status_of(of, record(of))
    gone = status_of(
        of, observed=pod_runtime_state([], []), previous=before, termination=PodTermination(1)
    )
    assert gone.podIP == "10.0.0.7"


def test_a_container_the_runtime_has_lost_is_counted() -> None:
    of = pod()
    before = status_of(of, record(of))
    lost = only(status_of(of, observed=pod_runtime_state([], []), previous=before))
    assert lost.restartCount == 1
    assert lost.lastState.terminated is not None
    assert lost.lastState.terminated.reason == "ContainerStatusUnknown"
    again = status_of(
        of, observed=pod_runtime_state([], []), previous=PodStatus(containerStatuses=[lost])
    )
    assert only(again).restartCount == 1


def test_the_last_status_leaves_nothing_open() -> None:
    of = pod()
    status = final_status(of, status_of(of, record(of)))
    assert status.phase == "Failed"
    state = only(status).state.terminated
    assert state is not None
    assert (state.exitCode, state.reason) == (137, "ContainerStatusUnknown")


def test_what_was_never_begun_is_not_said_to_have_ended() -> None:
    of = pod(
        spec={
            "initContainers": [{"name": "i", "image": "i"}],
            "containers": [{"name": "ctr", "image": "i"}],
        }
    )
    status = final_status(
        of, status_of(of, record(of, "i", RunState.EXITED, exit_code=1), terminal=True)
    )
    assert only(status).state.waiting is not None
    assert status.initContainerStatuses[0].state.terminated is not None


def test_read_only_mounts_say_whether_they_are_so_throughout() -> None:
    mounts = [
        {"name": "vol", "mountPath": "/a", "readOnly": True, "recursiveReadOnly": "Enabled"},
        {"name": "vol", "mountPath": "/b", "readOnly": True},
        {"name": "vol", "mountPath": "/c"},
    ]
    of = pod(container={"volumeMounts": mounts}, volume={"emptyDir": {}})
    found = [m.recursiveReadOnly for m in only(status_of(of, record(of))).volumeMounts]
    assert found == ["Enabled", "Disabled", None]


def test_a_rejected_pod_has_failed() -> None:
    status = rejected_status(pod(), "OutOfcpu", "too little", NOW)
    assert (status.phase, status.reason) == ("Failed", "OutOfcpu")
    assert status.message == "Pod was rejected: too little"


def with_init(*inits: dict[str, Any], **spec: Any) -> Pod:
    """A pod with these containers before its main one."""
    names = [{"name": f"i{number}", "image": "i"} | each for number, each in enumerate(inits)]
    return pod(spec={"initContainers": names, **spec})


def deleted(of: Pod) -> Pod:
    return changed(of, metadata=changed(of.metadata, deletionTimestamp="2030-01-01T00:01:30Z"))


def nothing(of: Pod, **facts: Any) -> PodStatus:
    """The status of a pod of which the runtime has nothing."""
    return status_of(of, observed=pod_runtime_state([], []), **facts)


def test_the_generation_never_goes_back() -> None:
    for before, after in ((2, 3), (9, 9)):
        previous = PodStatus(observedGeneration=before)
        assert nothing(pod(), previous=previous).observedGeneration == after


def test_addresses_are_told_if_there_are_any() -> None:
    status = nothing(pod())
    assert (status.hostIP, list(status.hostIPs), list(status.podIPs)) == ("", [], [])
    status = status_of(pod(), host_ips=["1.1.1.1", "2.2.2.2"])
    assert [each.ip for each in status.hostIPs] == ["1.1.1.1", "2.2.2.2"]
    assert [each.ip for each in status.podIPs] == ["10.0.0.7"]


def test_a_pod_keeps_the_time_at_which_it_began() -> None:
    begun = changed(pod(), status=PodStatus(startTime="2029-01-01T00:00:00Z"))
    assert nothing(begun).startTime == "2029-01-01T00:00:00Z"
    assert rejected_status(begun, "r", "m", NOW).startTime == "2029-01-01T00:00:00Z"
    assert rejected_status(pod(), "r", "m", NOW).startTime == "2030-01-01T00:01:00Z"
    assert nothing(begun, previous=PodStatus(startTime="2028-01-01T00:00:00Z")).startTime == (
        "2028-01-01T00:00:00Z"
    )


def test_resources_of_a_whole_pod_are_allocated_as_they_are_asked_for() -> None:
    assert nothing(pod()).allocatedResources == {}
    of = pod(spec={"resources": {"requests": {"cpu": "2"}}})
    assert {name: str(each) for name, each in nothing(of).allocatedResources.items()} == {
        "cpu": "2"
    }


def test_ephemeral_containers_are_listed_by_name_and_are_never_ready() -> None:
    extra = [{"name": name, "image": "i"} for name in ("z", "a")]
    of = pod(spec={"ephemeralContainers": extra})
    status = status_of(of, record(of), record(of, "a"))
    assert [each.name for each in status.ephemeralContainerStatuses] == ["a", "z"]
    running = status.ephemeralContainerStatuses[0]
    assert running.state.running is not None
    assert (running.ready, running.started) == (False, None)
    assert nothing(pod()).ephemeralContainerStatuses == ()


def test_a_pod_that_is_to_end_keeps_its_phase_until_all_has_stopped() -> None:
    of = pod()
    assert nothing(of, termination=PodTermination(1)).phase == "Pending"
    told = changed(of, status=PodStatus(phase="Running", reason="R", message="M"))
    status = status_of(told, record(of), termination=PodTermination(1))
    assert (status.phase, status.reason, status.message) == ("Running", "R", "M")


def test_a_pod_that_ended_before_it_had_begun_has_failed() -> None:
    assert nothing(pod(), terminal=True, termination=PodTermination(1)).phase == "Failed"
    of = pod(spec={"restartPolicy": "Never"})
    for code, word in ((0, "Succeeded"), (1, "Failed")):
        ended = record(of, state=RunState.EXITED, exit_code=code)
        assert status_of(of, ended, terminal=True, termination=PodTermination(1)).phase == word


def test_the_reason_stays_as_long_as_the_phase() -> None:
    of = pod()
    before = PodStatus(phase="Running", reason="R", message="M")
    same = status_of(of, record(of), previous=before)
    assert (same.phase, same.reason, same.message) == ("Running", "R", "M")
    other = status_of(of, record(of), previous=changed(before, phase="Pending"))
    assert (other.phase, other.reason, other.message) == ("Running", "", "")


def test_a_pod_runs_once_one_of_its_containers_has_begun_whatever_its_sidecars_do() -> None:
    of = pod(
        spec={
            "initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
            "containers": [{"name": "ctr", "image": "i"}, {"name": "two", "image": "i"}],
        }
    )
    waiting = {"side": WaitingReason("CrashLoopBackOff", "")}
    ended = record(of, "side", RunState.EXITED, exit_code=1)
    pending = status_of(of, ended, waiting=waiting)
    assert pending.phase == "Pending"
    begun = status_of(of, ended, record(of), record(of, "two"), waiting=waiting)
    assert begun.phase == "Running"


def test_devices_stay_in_the_status_when_they_are_given_back() -> None:
    of, held = pod(), [ResourceStatus(name="example.com/gpu")]
    status = status_of(of, record(of), devices={"ctr": held})
    assert only(status).allocatedResourcesStatus == held
    ended = record(of, state=RunState.EXITED)
    assert only(status_of(of, ended, previous=status)).allocatedResourcesStatus == held
    assert only(status_of(of, ended)).allocatedResourcesStatus == ()
    other = [ResourceStatus(name="example.com/fpga")]
    later = status_of(of, ended, previous=status, devices={"ctr": other})
    assert only(later).allocatedResourcesStatus == other


def test_one_container_may_use_all_the_room_for_messages() -> None:
    of = pod()
    ended = record(of, state=RunState.EXITED)
    state = only(status_of(of, ended, messages={ended.id: "x" * 20000})).state.terminated
    assert state is not None
    assert len(state.message) == 12 * 1024
    many = with_init({}, {}, ephemeralContainers=[{"name": "e", "image": "i"}])
    ended = record(many, state=RunState.EXITED)
    said = "x" + "é" * 4000
    (found,) = status_of(many, ended, messages={ended.id: said}).containerStatuses
    assert found.state.terminated is not None
    assert found.state.terminated.message == said[:1536]


def test_a_message_of_the_runtime_precedes_that_of_the_container() -> None:
    of = pod()
    for record_message, said, told in (
        ("killed", "bye", "killed: bye"),
        ("killed", "", "killed"),
        ("", "bye", "bye"),
        ("", "", ""),
    ):
        ended = record(of, state=RunState.EXITED, message=record_message)
        messages = {ended.id: said} if said else {}
        state = only(status_of(of, ended, messages=messages)).state.terminated
        assert state is not None
        assert state.message == told


def test_the_reason_of_an_end_follows_from_the_exit_code() -> None:
    of = pod()
    for fields, reason in (
        ({"exit_code": 0}, "Completed"),
        ({"exit_code": 1}, "Error"),
        ({"exit_code": 0, "reason": "Lost"}, "Lost"),
    ):
        state = only(status_of(of, record(of, state=RunState.EXITED, **fields))).state.terminated
        assert state is not None
        assert state.reason == reason


def test_a_container_that_is_made_but_not_started_waits() -> None:
    of = pod()
    container = only(status_of(of, record(of, state=RunState.CREATED)))
    assert container.state.waiting is not None
    assert container.user is None


def test_a_running_container_has_what_it_was_given_last() -> None:
    old = pod(container={"resources": {"requests": {"cpu": "1"}}})
    new = pod(container={"resources": {"requests": {"cpu": "2"}}})
    begun = record(old)

    def cpu(status: PodStatus) -> str:
        resources = only(status).resources
        assert resources is not None
        return str(resources.requests["cpu"])

    assert cpu(status_of(new, begun)) == "1"
    assert cpu(status_of(new, begun, actuated={"ctr": new.spec.containers[0].resources})) == "2"
    assert cpu(status_of(new, record(old, state=RunState.EXITED))) == "2"
    assert cpu(status_of(new, record(old, annotations={}))) == "2"


def test_the_status_remembers_an_end_that_the_runtime_has_forgotten() -> None:
    of = pod()
    ended = status_of(of, record(of, state=RunState.EXITED, exit_code=3))
    new = record(of, id="ctr-1", attempt=1)
    later = status_of(of, new, previous=ended)
    assert only(later).lastState == only(ended).state
    assert only(status_of(of, new, previous=later)).lastState == only(ended).state
    same = status_of(of, record(of, state=RunState.EXITED, exit_code=3), previous=ended)
    assert only(same).lastState.terminated is None
    assert only(nothing(of, previous=ended)) == only(ended)


def test_a_container_waits_for_those_before_it() -> None:
    reasons = {}
    for of in (pod(), with_init({})):
        waiting = only(nothing(of)).state.waiting
        assert waiting is not None
        reasons[len(of.spec.initContainers)] = waiting.reason
    assert reasons == {0: "ContainerCreating", 1: "PodInitializing"}


def test_a_lost_container_of_a_pod_that_goes_is_not_followed_by_another() -> None:
    of = pod()
    before = status_of(of, record(of, attempt=4))
    lost = only(nothing(deleted(of), previous=before))
    assert lost.restartCount == 4
    assert lost.lastState.terminated is not None
    assert lost.lastState.terminated.message == (
        "The container could not be located when the pod was deleted.  "
        "The container used to be Running"
    )
    assert only(nothing(of, previous=before)).restartCount == 5


def test_a_container_that_runs_or_is_done_does_not_wait() -> None:
    reason = {name: WaitingReason("CrashLoopBackOff", "m") for name in ("ctr", "i0")}

    def waits(of: Pod, *records: RuntimeContainer) -> list[bool]:
        status = status_of(of, *records, waiting=reason)
        found = (*status.initContainerStatuses, *status.containerStatuses)
        return [each.state.waiting is not None for each in found]

    assert waits(pod(), record(pod())) == [False]
    assert waits(pod(), record(pod(), state=RunState.CREATED)) == [True]
    never = pod(spec={"restartPolicy": "Never"})
    assert waits(never, record(never, state=RunState.EXITED, exit_code=1)) == [False]
    always = pod()
    assert waits(always, record(always, state=RunState.EXITED, exit_code=0)) == [True]
    init, side = with_init({}), with_init({"restartPolicy": "Always"})
    assert waits(init, record(init, "i0", RunState.EXITED, exit_code=0)) == [False, True]
    assert waits(init, record(init, "i0", RunState.EXITED, exit_code=1)) == [True, True]
    assert waits(side, record(side, "i0", RunState.EXITED, exit_code=0)) == [True, True]


def test_an_init_container_is_ready_when_it_has_succeeded_and_a_sidecar_while_it_runs() -> None:
    init, side = with_init({}), with_init({"restartPolicy": "Always"})

    def ready(of: Pod, state: RunState, code: int = 0) -> bool:
        status = status_of(of, record(of, "i0", state, exit_code=code))
        return status.initContainerStatuses[0].ready

    assert ready(init, RunState.EXITED)
    assert not ready(init, RunState.EXITED, 1)
    assert not ready(init, RunState.RUNNING)
    assert ready(side, RunState.RUNNING)
    assert not ready(side, RunState.EXITED)
    ended = status_of(pod(), record(pod(), state=RunState.EXITED))
    assert not only(ended).ready


def test_a_mount_is_read_only_throughout_if_that_is_possible() -> None:
    mount = {"name": "vol", "mountPath": "/a", "readOnly": True, "recursiveReadOnly": "IfPossible"}
    of = pod(container={"volumeMounts": [mount]}, volume={"emptyDir": {}})
    (found,) = only(status_of(of, record(of))).volumeMounts
    assert found.recursiveReadOnly == "Enabled"


def ends(of: Pod, *records: RuntimeContainer) -> list[str]:
    """How the containers of a pod ended, in its last status; empty for those that never began."""
    status = final_status(of, status_of(of, *records))
    found = (*status.initContainerStatuses, *status.containerStatuses)
    return [each.state.terminated.reason if each.state.terminated else "" for each in found]


def test_the_last_status_ends_init_containers_up_to_the_last_that_began() -> None:
    of, lost = with_init({}, {}, {}), "ContainerStatusUnknown"
    assert ends(of) == [lost, "", "", ""]
    first = record(of, "i0", RunState.EXITED)
    assert ends(of, first) == ["Completed", "", "", ""]
    assert ends(of, first, record(of, "i1")) == ["Completed", lost, "", ""]
    assert ends(of, record(of, "i1")) == [lost, lost, "", ""]
    assert ends(of, record(of, "i2", RunState.EXITED)) == [lost, lost, "Completed", lost]
    assert ends(of, record(of, "i2", RunState.EXITED, exit_code=1)) == [lost, lost, "Error", ""]


def test_the_last_status_ends_main_containers_once_one_of_them_or_all_before_them_began() -> None:
    lost = "ContainerStatusUnknown"
    two = with_init({}, containers=[{"name": n, "image": "i"} for n in ("ctr", "two")])
    assert ends(two, record(two)) == [lost, lost, lost]
    side = with_init({"restartPolicy": "Always"})
    assert ends(side, record(side, "i0")) == [lost, lost]
    assert ends(side, record(side, "i0", RunState.EXITED)) == ["Completed", ""]
    assert final_status(side, PodStatus(phase="Pending")).containerStatuses == ()


def test_what_the_last_status_ends_is_neither_ready_nor_started() -> None:
    of = pod()
    container = only(final_status(of, status_of(of, record(of))))
    assert (container.ready, container.started) == (False, False)
    assert container.state.terminated is not None
    assert container.state.terminated.message == (
        "The container could not be located when the pod was terminated"
    )
    again = only(final_status(of, status_of(of, record(of, state=RunState.EXITED))))
    assert again.state.terminated is not None
    assert again.state.terminated.reason == "Completed"


def test_the_last_status_of_a_container_that_restarts_counts_it_as_begun() -> None:
    of = with_init({})
    waiting = {"ctr": WaitingReason("CrashLoopBackOff", "")}
    ended = record(of, state=RunState.EXITED, exit_code=1)
    status = final_status(
        of, status_of(of, record(of, "i0", RunState.EXITED), ended, waiting=waiting)
    )
    assert only(status).state.terminated is not None
