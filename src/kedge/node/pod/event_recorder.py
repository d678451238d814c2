"""Records the events of one pod and its containers, with the kubelet's reasons and messages."""

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.pod.dependencies import EventSink
from kedge.node.pod.plan import PodPlan
from kedge.node.pod.waiting import pod_label

NORMAL = "Normal"
WARNING = "Warning"


class PodEventRecorder:
    """Records the events of one pod."""

    def __init__(self, events: EventSink, pod: Pod) -> None:
        self._events = events
        self.pod = pod
        self._waiting: dict[str, tuple[str, str]] = {}

    def record_pod(self, type_: str, reason: str, message: str) -> None:
        """Record an event about the pod."""
        self._events.record(self.pod, type_, reason, message)

    def record_container(self, name: str, type_: str, reason: str, message: str) -> None:
        """Record an event about a container."""
        path = field_path(self.pod, name)
        self._events.record(self.pod, type_, reason, message, field_path=path)

    def record_waiting(self, plan: PodPlan) -> None:
        """Record an event for each container that waits, once for each change of its reason."""
        for name, waiting in plan.waiting.items():
            known = waiting.reason, waiting.message
            if self._waiting.get(name) != known:
                self._waiting[name] = known
                self._record_back_off(name, waiting.reason)
        for name in self._waiting.keys() - plan.waiting.keys():
            del self._waiting[name]

    def _record_back_off(self, name: str, reason: str) -> None:
        if reason == "CrashLoopBackOff":
            text = f"Back-off restarting failed container {name} in pod {pod_label(self.pod)}"
            self.record_container(name, WARNING, "BackOff", text)
        elif reason == "ImagePullBackOff":
            image = _image(self.pod, name)
            self.record_container(name, NORMAL, "BackOff", f'Back-off pulling image "{image}"')
            self.record_container(name, WARNING, "Failed", "Error: ImagePullBackOff")


def field_path(pod: Pod, name: str) -> str:
    """Return the path of a container in the pod's spec; empty if it has no such container."""
    lists = ("containers", "initContainers", "ephemeralContainers")
    for kind in lists:
        if any(container.name == name for container in getattr(pod.spec, kind)):
            return f"spec.{kind}{{{name}}}"
    return ""


def _image(pod: Pod, name: str) -> str:
    spec = pod.spec
    containers = (*spec.containers, *spec.initContainers, *spec.ephemeralContainers)
    return next((container.image for container in containers if container.name == name), "")
