from kedge.node.pod.event_recorder import NORMAL, PodEventRecorder, field_path
from kedge.node.pod.plan import PodPlan
from kedge.node.pod.waiting import WaitingReason
from kedge.testing.node import RecordedEvents
from kedge.testing.pods import new_pod

POD = new_pod(
    metadata={"uid": "u"},
    spec={
        "containers": [{"name": "main", "image": "i"}],
        "initContainers": [{"name": "first", "image": "j"}],
    },
)


def waiting(reason: str, message: str = "") -> PodPlan:
    return PodPlan(waiting={"main": WaitingReason(reason, message)})


def test_events_about_containers_have_a_field_path() -> None:
    events = RecordedEvents()
    recorder = PodEventRecorder(events, POD)
    recorder.record_pod(NORMAL, "A", "pod")
    recorder.record_container("first", NORMAL, "B", "container")
    assert events.told == [("Normal", "A", "pod"), ("Normal", "B", "container")]
    assert events.paths == ["", "spec.initContainers{first}"]
    assert field_path(POD, "main") == "spec.containers{main}"
    assert field_path(POD, "unknown") == ""


def test_a_crash_loop_is_recorded_once_for_each_delay() -> None:
    events = RecordedEvents()
    recorder = PodEventRecorder(events, POD)
    recorder.record_waiting(waiting("CrashLoopBackOff", "10s"))
    recorder.record_waiting(waiting("CrashLoopBackOff", "10s"))
    text = "Back-off restarting failed container main in pod pod_default(u)"
    assert events.told == [("Warning", "BackOff", text)]
    recorder.record_waiting(waiting("CrashLoopBackOff", "20s"))
    assert len(events.told) == 2


def test_a_container_that_waits_again_is_recorded_again() -> None:
    events = RecordedEvents()
    recorder = PodEventRecorder(events, POD)
    for plan in (waiting("ImagePullBackOff"), PodPlan(), waiting("ImagePullBackOff")):
        recorder.record_waiting(plan)
    assert events.told == 2 * [
        ("Normal", "BackOff", 'Back-off pulling image "i"'),
        ("Warning", "Failed", "Error: ImagePullBackOff"),
    ]


def test_other_reasons_are_recorded_where_they_arise() -> None:
    events = RecordedEvents()
    PodEventRecorder(events, POD).record_waiting(waiting("CreateContainerConfigError"))
    assert events.told == []
