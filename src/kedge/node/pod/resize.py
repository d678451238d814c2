"""Resize in place: applies the allocated resources to running containers."""

from collections.abc import Sequence

import msgspec

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import all_containers
from kedge.machinery.durations import format_time
from kedge.node.pod import labels
from kedge.node.pod.dependencies import PodDependencies
from kedge.node.pod.event_recorder import NORMAL, WARNING, PodEventRecorder
from kedge.node.pod.resources import AllocatedResources, resize_message
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.pod.step_failures import StepFailures
from kedge.node.pod.waiting import RESIZE_STEP
from kedge.node.runtime.runtime import RuntimeContainer, RuntimeFailure


class ContainerResizer(msgspec.Struct, frozen=True):
    """Resizes the containers of one pod."""

    dependencies: PodDependencies
    recorder: PodEventRecorder
    failures: StepFailures
    resources: AllocatedResources

    async def resize(self, pod: Pod, observed: PodRuntimeState, names: Sequence[str]) -> None:
        """Apply the allocated resources of `pod` to the named containers.

        The limit of the pod must never be below the sum of its containers' limits: the pod's
        cgroup is enlarged before its containers, and reduced after them, as in the kubelet.
        """
        cgroups = self.dependencies.cgroups
        containers = list(_running(pod, observed, names))
        shrinks = self._shrinks(containers)
        try:
            if not shrinks:
                cgroups.update(pod)
            for record, container in containers:
                limits = cgroups.resources(pod, container)
                await self.dependencies.runtime.update_container(record.id, limits)
                self.resources.record_resize(container)
            if shrinks:
                cgroups.update(pod)
        except (RuntimeFailure, OSError) as error:
            self._record_error(pod, str(error))
        else:
            self.failures.clear(RESIZE_STEP)

    def _record_error(self, pod: Pod, error: str) -> None:
        self.failures.record(RESIZE_STEP, "Error", error)
        self.resources.record_error(pod, error, format_time(self.dependencies.clock.now()))
        text = resize_message("Pod resize error", pod, pod.metadata.generation, error)
        self.recorder.record_pod(WARNING, "ResizeError", text)

    def _shrinks(self, containers: Sequence[tuple[RuntimeContainer, Container]]) -> bool:
        """Return whether the sum of the containers' cpu limits decreases."""
        before = after = 0
        for record, container in containers:
            actuated = self.resources.actuated.get(container.name) or labels.started_with(record)
            limit = container.resources.limits.get("cpu")
            old = actuated.limits.get("cpu") if actuated is not None else None
            before += old.milli() if old is not None else 0
            after += limit.milli() if limit is not None else 0
        return after < before

    def finish(self, pod: Pod) -> None:
        """Complete a resize that has no actions left, and record the event."""
        if self.resources.is_in_progress and RESIZE_STEP not in self.failures.by_step:
            generation = self.resources.complete()
            text = resize_message("Pod resize completed", pod, generation or 0)
            self.recorder.record_pod(NORMAL, "ResizeCompleted", text)


def _running(
    pod: Pod, observed: PodRuntimeState, names: Sequence[str]
) -> Sequence[tuple[RuntimeContainer, Container]]:
    specs = {container.name: container for _, container in all_containers(pod.spec)}
    found = []
    for name in names:
        record = observed.newest(name)
        if record is not None and name in specs:
            found.append((record, specs[name]))
    return found
