from msgspec.structs import replace

from kedge.node.pod import labels
from kedge.node.runtime.runtime import RunState, RuntimeContainer
from kedge.testing.pods import new_pod

POD = new_pod(
    metadata={"uid": "u", "labels": {"app": "web", labels.POD_UID: "forged"}},
    container={
        "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "1Gi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    },
)
CONTAINER = POD.spec.containers[0]


def record(annotations: dict[str, str]) -> RuntimeContainer:
    return RuntimeContainer(
        id="c", sandbox="s", name="ctr", state=RunState.RUNNING, annotations=annotations
    )


def test_labels_of_the_pod_cannot_hide_who_it_is() -> None:
    assert labels.pod_labels(POD) == {
        "app": "web",
        "io.kubernetes.pod.name": "pod",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": "u",
    }
    assert labels.container_labels(POD, CONTAINER)["io.kubernetes.container.name"] == "ctr"


def test_a_container_has_changed_if_its_image_has() -> None:
    made = record(labels.container_annotations(POD, CONTAINER, "docker.io/image", "sha256:0"))
    assert not labels.changed(CONTAINER, made)
    assert not labels.changed(replace(CONTAINER, command=["other"]), made)
    assert labels.changed(replace(CONTAINER, image="other"), made)


def test_a_later_agent_reads_what_an_earlier_one_wrote() -> None:
    annotations = labels.container_annotations(POD, CONTAINER, "docker.io/image", "sha256:0")
    assert labels.started_with(record(annotations)) == CONTAINER.resources
    assert annotations[labels.GRACE] == "30"
    assert annotations[labels.MESSAGE_POLICY] == "FallbackToLogsOnError"
    assert (annotations[labels.IMAGE], annotations[labels.IMAGE_ID]) == (
        "docker.io/image",
        "sha256:0",
    )
    assert labels.started_with(record({})) is None
