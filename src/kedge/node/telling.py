"""Telling: events about a pod and its containers, in the words that people know."""

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.parts import Events
from kedge.node.plan import Plan, label

NORMAL = "Normal"
WARNING = "Warning"


class Telling:
    """The events of one pod."""

    def __init__(self, events: Events, pod: Pod) -> None:
        self._events = events
        self.pod = pod
        self._waits: dict[str, tuple[str, str]] = {}

    def of_pod(self, type_: str, reason: str, message: str) -> None:
        self._events.record(self.pod, type_, reason, message)

    def of_container(self, name: str, type_: str, reason: str, message: str) -> None:
        path = field_path(self.pod, name)
        self._events.record(self.pod, type_, reason, message, field_path=path)

    def of_plan(self, plan: Plan) -> None:
        """Say who has to wait, once each time it changes."""
        for name, waiting in plan.waiting.items():
            known = waiting.reason, waiting.message
            if self._waits.get(name) != known:
                self._waits[name] = known
                self._of_waiting(name, waiting.reason)
        for name in self._waits.keys() - plan.waiting.keys():
            del self._waits[name]

    def _of_waiting(self, name: str, reason: str) -> None:
        if reason == "CrashLoopBackOff":
            text = f"Back-off restarting failed container {name} in pod {label(self.pod)}"
            self.of_container(name, WARNING, "BackOff", text)
        elif reason == "ImagePullBackOff":
            image = _image(self.pod, name)
            self.of_container(name, NORMAL, "BackOff", f'Back-off pulling image "{image}"')
            self.of_container(name, WARNING, "Failed", "Error: ImagePullBackOff")


def field_path(pod: Pod, name: str) -> str:
    """Where in the spec a container is."""
    lists = ("containers", "initContainers", "ephemeralContainers")
    for kind in lists:
        if any(container.name == name for container in getattr(pod.spec, kind)):
            return f"spec.{kind}{{{name}}}"
    return ""


def _image(pod: Pod, name: str) -> str:
    spec = pod.spec
    everybody = (*spec.containers, *spec.initContainers, *spec.ephemeralContainers)
    return next((container.image for container in everybody if container.name == name), "")
