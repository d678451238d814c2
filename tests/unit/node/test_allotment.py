from pathlib import Path

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.allotment import Allotment, summary
from kedge.node.observed import NOTHING
from kedge.testing.pods import new_pod

NOW = "2030-01-01T00:00:00Z"


def sized(cpu: str) -> Pod:
    return new_pod(container={"resources": {"requests": {"cpu": cpu}}})


def cpu(pod: Pod) -> str:
    return str(pod.spec.containers[0].resources.requests["cpu"])


def test_a_pod_has_what_it_was_granted(tmp_path: Path) -> None:
    file = tmp_path / "pod/resize.json"
    allotment = Allotment(sized("1"), file)
    assert not allotment.wants(sized("1"))
    assert allotment.wants(sized("2"))
    assert cpu(allotment.granted(sized("2"))) == "1"
    assert not file.exists(), "a pod that was never resized has no file"
    allotment.grant(sized("2"), NOW)
    assert cpu(allotment.granted(sized("2"))) == "2"
    assert [c.type for c in allotment.conditions] == ["PodResizeInProgress"]


def test_what_was_granted_and_given_outlives_the_agent(tmp_path: Path) -> None:
    file = tmp_path / "resize.json"
    allotment = Allotment(sized("1"), file)
    allotment.grant(sized("2"), NOW)
    allotment.gave(sized("2").spec.containers[0])
    again = Allotment.taken_over(sized("3"), NOTHING, file)
    assert cpu(again.granted(sized("3"))) == "2"
    assert str(again.actual["ctr"].requests["cpu"]) == "2"


def test_waiting_is_news_once(tmp_path: Path) -> None:
    allotment = Allotment(sized("1"), tmp_path / "resize.json")
    assert allotment.defer(sized("9"), "Deferred", "too little", NOW)
    assert not allotment.defer(sized("9"), "Deferred", "too little", NOW)
    (pending,) = allotment.conditions
    assert (pending.type, pending.reason) == ("PodResizePending", "Deferred")
    allotment.withdraw()
    assert allotment.conditions == []


def test_events_say_what_is_asked_for() -> None:
    text = summary("Pod resize started", sized("2"), 4)
    assert text == (
        'Pod resize started: {"containers":[{"name":"ctr","resources":'
        '{"limits":{},"requests":{"cpu":"2"}}}],"generation":4}'
    )
