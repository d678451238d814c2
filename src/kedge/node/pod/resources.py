"""The allocated and actuated resources of a pod.

Allocated resources are those that the node has granted to the pod; actuated resources are those
that a running container has received by its latest resize. Both differ from the spec while a resize
is deferred or in progress. They are stored in a small file, so that a restarted agent does not
take the requested resources for the allocated ones; a pod that was never resized has no file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodCondition
from kedge.machinery import atomic
from kedge.node.pod import labels
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.pod.status.conditions import RESIZE_IN_PROGRESS, RESIZE_PENDING


class _ResizeCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    allocated: Mapping[str, str] = {}
    actual: Mapping[str, str] = {}
    whole: str | None = None
    """The allocated pod-level resources, if the pod has any."""


class AllocatedResources:
    """The resources of one pod."""

    def __init__(self, pod: Pod, file: Path) -> None:
        self._file = file
        self._allocated = {c.name: c.resources for c in _resizable(pod)}
        self._pod_level = pod.spec.resources
        self.actuated: dict[str, ResourceRequirements] = {}
        """By container name: the resources of the latest resize in place."""
        self._pending: PodCondition | None = None
        self._in_progress: PodCondition | None = None

    @classmethod
    def restore(cls, pod: Pod, observed: PodRuntimeState, file: Path) -> "AllocatedResources":
        """Return the resources of a pod that a previous agent may have started.

        Without a file the annotations of the containers decide, not the spec: the spec may have
        changed while no agent was running.
        """
        self = cls(pod, file)
        try:
            stored = msgspec.json.decode(file.read_bytes(), type=_ResizeCheckpoint)
        except (OSError, msgspec.MsgspecError):
            stored = None
        if stored is not None:
            self._allocated |= {n: labels.from_text(text) for n, text in stored.allocated.items()}
            self.actuated = {n: labels.from_text(text) for n, text in stored.actual.items()}
            self._pod_level = None if stored.whole is None else labels.from_text(stored.whole)
        else:
            self._restore_from_containers(observed)
        known = {c.type: c for c in pod.status.conditions}
        self._pending = known.get(RESIZE_PENDING)
        self._in_progress = known.get(RESIZE_IN_PROGRESS)
        return self

    def _restore_from_containers(self, observed: PodRuntimeState) -> None:
        for name in self._allocated:
            record = observed.newest(name)
            started = labels.started_with(record) if record is not None else None
            if started is not None:
                self._allocated[name] = started

    @property
    def conditions(self) -> Sequence[PodCondition]:
        """The conditions of the pod about its resize."""
        return [c for c in (self._pending, self._in_progress) if c is not None]

    def allocated_pod(self, pod: Pod) -> Pod:
        """Return the pod with the allocated resources in its spec."""
        if not self.differs(pod):
            return pod
        spec = replace(
            pod.spec,
            resources=self._pod_level,
            initContainers=[self._with_allocated(c) for c in pod.spec.initContainers],
            containers=[self._with_allocated(c) for c in pod.spec.containers],
        )
        return replace(pod, spec=spec)

    def differs(self, pod: Pod) -> bool:
        """Return whether the spec requests other resources than the allocated ones."""
        return pod.spec.resources != self._pod_level or any(
            self._allocated.get(c.name, c.resources) != c.resources for c in _resizable(pod)
        )

    def allocate(self, pod: Pod, now: str) -> None:
        """Allocate the resources of the spec; the next plan applies them to the containers."""
        self._allocated = {c.name: c.resources for c in _resizable(pod)}
        self._pod_level = pod.spec.resources
        self._pending = None
        self._in_progress = _condition(RESIZE_IN_PROGRESS, pod, "", "", now)
        self._save()

    def clear_pending(self) -> None:
        """Remove the pending condition: the spec requests what is allocated."""
        self._pending = None

    def defer(self, pod: Pod, reason: str, message: str, now: str) -> bool:
        """Set the pending condition; return whether its reason or generation is new."""
        before = self._pending
        self._pending = _condition(RESIZE_PENDING, pod, reason, message, now)
        if before is None:
            return True
        self._pending = replace(self._pending, lastTransitionTime=before.lastTransitionTime)
        return (before.reason, before.observedGeneration) != (reason, pod.metadata.generation)

    def record_resize(self, container: Container) -> None:
        """Record that a running container has received its allocated resources."""
        self.actuated[container.name] = container.resources
        self._save()

    def record_start(self, name: str) -> None:
        """Record that a container has started, and so has its allocated resources."""
        if self.actuated.pop(name, None) is not None:
            self._save()

    def record_error(self, pod: Pod, message: str, now: str) -> None:
        """Add the error of a failed resize to the in-progress condition."""
        self._in_progress = _condition(RESIZE_IN_PROGRESS, pod, "Error", message, now)

    def complete(self) -> int | None:
        """End the resize in progress; return its generation, or None if there was none."""
        done, self._in_progress = self._in_progress, None
        return None if done is None else done.observedGeneration

    @property
    def is_in_progress(self) -> bool:
        """Whether a resize is in progress."""
        return self._in_progress is not None

    def _with_allocated(self, container: Container) -> Container:
        return replace(
            container, resources=self._allocated.get(container.name, container.resources)
        )

    def _save(self) -> None:
        stored = _ResizeCheckpoint(
            allocated={n: labels.to_text(r) for n, r in self._allocated.items()},
            actual={n: labels.to_text(r) for n, r in self.actuated.items()},
            whole=None if self._pod_level is None else labels.to_text(self._pod_level),
        )
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(self._file, msgspec.json.encode(stored))


def _resizable(pod: Pod) -> Sequence[Container]:
    return [*pod.spec.initContainers, *pod.spec.containers]


def _condition(kind: str, pod: Pod, reason: str, message: str, now: str) -> PodCondition:
    return PodCondition(
        type=kind,
        status="True",
        reason=reason,
        message=message,
        lastProbeTime=now,
        lastTransitionTime=now,
        observedGeneration=pod.metadata.generation,
    )


def resize_message(prefix: str, pod: Pod, generation: int, error: str = "") -> str:
    """Return the message of an event about a resize: the resources of every container."""
    parts: dict[str, Any] = {}
    for key in ("initContainers", "containers"):
        found = [
            {"name": c.name, "resources": msgspec.json.decode(labels.to_text(c.resources))}
            for c in getattr(pod.spec, key)
        ]
        if found:
            parts[key] = found
    parts["generation"] = generation
    if error:
        parts["error"] = error
    return f"{prefix}: {msgspec.json.encode(parts).decode()}"
