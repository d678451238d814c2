from pathlib import Path

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.pod.resources import AllocatedResources, resize_message
from kedge.node.pod.runtime_cache import EMPTY
from kedge.testing.pods import new_pod

NOW = "2030-01-01T00:00:00Z"


def sized(cpu: str) -> Pod:
    return new_pod(container={"resources": {"requests": {"cpu": cpu}}})


def cpu(pod: Pod) -> str:
    return str(pod.spec.containers[0].resources.requests["cpu"])


def test_a_pod_has_what_it_was_granted(tmp_path: Path) -> None:
    file = tmp_path / "pod/resize.json"
    resources = AllocatedResources(sized("1"), file)
    assert not resources.differs(sized("1"))
    assert resources.differs(sized("2"))
    assert cpu(resources.allocated_pod(sized("2"))) == "1"
    assert not file.exists(), "a pod that was never resized has no file"
    resources.allocate(sized("2"), NOW)
    assert cpu(resources.allocated_pod(sized("2"))) == "2"
    assert [c.type for c in resources.conditions] == ["PodResizeInProgress"]


def test_what_was_granted_and_given_outlives_the_agent(tmp_path: Path) -> None:
    file = tmp_path / "resize.json"
    resources = AllocatedResources(sized("1"), file)
    resources.allocate(sized("2"), NOW)
    resources.record_resize(sized("2").spec.containers[0])
    again = AllocatedResources.restore(sized("3"), EMPTY, file)
    assert cpu(again.allocated_pod(sized("3"))) == "2"
    assert str(again.actuated["ctr"].requests["cpu"]) == "2"


def test_waiting_is_news_once(tmp_path: Path) -> None:
    resources = AllocatedResources(sized("1"), tmp_path / "resize.json")
    assert resources.defer(sized("9"), "Deferred", "too little", NOW)
    assert not resources.defer(sized("9"), "Deferred", "too little", NOW)
    (pending,) = resources.conditions
    assert (pending.type, pending.reason) == ("PodResizePending", "Deferred")
    resources.clear_pending()
    assert resources.conditions == []


def test_events_say_what_is_asked_for() -> None:
    text = resize_message("Pod resize started", sized("2"), 4)
    assert text == (
        'Pod resize started: {"containers":[{"name":"ctr","resources":'
        '{"limits":{},"requests":{"cpu":"2"}}}],"generation":4}'
    )
