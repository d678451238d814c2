"""The directories that pods write to."""

from pathlib import Path

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import ObjectMeta
from kedge.node.pod.files import WritablePaths
from kedge.node.pod.runtime_cache import pod_runtime_state
from kedge.node.runtime.runtime import PodSandbox, RunState, RuntimeContainer
from kedge.node.stats.disk_places import PodDiskPlaces


class Volumes:
    """One emptyDir volume for each pod."""

    def empty_directories(self, pod: Pod) -> list[Path]:
        return [Path("/pods") / pod.metadata.uid / "volumes" / "cache"]


def test_layers_and_logs_are_those_of_containers_and_the_rest_is_the_pods() -> None:
    places = PodDiskPlaces(Volumes(), WritablePaths(Path("/pods"), Path("/runtime")))
    sandbox = PodSandbox(id="s1", namespace="default", name="web", uid="u1")
    container = RuntimeContainer(
        id="c1", sandbox="s1", name="main", state=RunState.RUNNING, log_path="/logs/main/0.log"
    )
    observed = pod_runtime_state([sandbox], [container])
    assert places.of_containers(observed) == {
        "main": [
            Path("/logs/main"),
            *(Path("/runtime/containers/c1", part) for part in ("upper", "parts", "shown")),
        ]
    }
    assert places.of_pod(Pod(metadata=ObjectMeta(name="web", uid="u1")), observed) == (
        [Path("/pods/u1/volumes/cache")],
        [Path("/pods/u1"), Path("/runtime/sandboxes/s1")],
    )
