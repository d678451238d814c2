from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace as changed

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.core_v1.pod.status import ContainerStatus, PodStatus
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
    everybody = (*of.spec.containers, *of.spec.initContainers)
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
