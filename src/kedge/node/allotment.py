"""Allotment: what of its wishes a pod has been granted, and what its containers have been given.

The two differ from the spec while a resize waits or is under way, so both outlive the agent in a
small file; a pod that was never resized has none.
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
from kedge.node import marks
from kedge.node.conditions import RESIZE_IN_PROGRESS, RESIZE_PENDING
from kedge.node.observed import Observed


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    allocated: Mapping[str, str] = {}
    actual: Mapping[str, str] = {}
    whole: str | None = None
    """What the pod as a whole was granted, if it asked as a whole."""


class Allotment:
    """The resources of one pod."""

    def __init__(self, pod: Pod, file: Path) -> None:
        self._file = file
        self._allocated = {c.name: c.resources for c in _resizable(pod)}
        self._whole = pod.spec.resources
        self.actual: dict[str, ResourceRequirements] = {}
        """By name of the container: what it was last given in place."""
        self._pending: PodCondition | None = None
        self._in_progress: PodCondition | None = None

    @classmethod
    def taken_over(cls, pod: Pod, seen: Observed, file: Path) -> "Allotment":
        """The allotment of a pod that an earlier agent may have begun with."""
        self = cls(pod, file)
        try:
            kept = msgspec.json.decode(file.read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError):
            kept = None
        if kept is not None:
            self._allocated |= {n: marks.from_text(text) for n, text in kept.allocated.items()}
            self.actual = {n: marks.from_text(text) for n, text in kept.actual.items()}
            self._whole = None if kept.whole is None else marks.from_text(kept.whole)
        else:
            for name in self._allocated:
                record = seen.newest(name)
                begun = marks.started_with(record) if record is not None else None
                if begun is not None:
                    self._allocated[name] = begun
        known = {c.type: c for c in pod.status.conditions}
        self._pending = known.get(RESIZE_PENDING)
        self._in_progress = known.get(RESIZE_IN_PROGRESS)
        return self

    @property
    def conditions(self) -> Sequence[PodCondition]:
        return [c for c in (self._pending, self._in_progress) if c is not None]

    def granted(self, pod: Pod) -> Pod:
        """The pod, asking for no more than it has been granted."""
        if not self.wants(pod):
            return pod
        spec = replace(
            pod.spec,
            resources=self._whole,
            initContainers=[self._with_grant(c) for c in pod.spec.initContainers],
            containers=[self._with_grant(c) for c in pod.spec.containers],
        )
        return replace(pod, spec=spec)

    def wants(self, pod: Pod) -> bool:
        """Whether the pod asks for something else than it has been granted."""
        return pod.spec.resources != self._whole or any(
            self._allocated.get(c.name, c.resources) != c.resources for c in _resizable(pod)
        )

    def grant(self, pod: Pod, now: str) -> None:
        """Let the pod have what it asks for; its containers are given it next."""
        self._allocated = {c.name: c.resources for c in _resizable(pod)}
        self._whole = pod.spec.resources
        self._pending = None
        self._in_progress = _condition(RESIZE_IN_PROGRESS, pod, "", "", now)
        self._save()

    def withdraw(self) -> None:
        """The pod asks for what it has: nothing waits any more."""
        self._pending = None

    def defer(self, pod: Pod, reason: str, message: str, now: str) -> bool:
        """Let the pod wait; says whether that is news."""
        before = self._pending
        self._pending = _condition(RESIZE_PENDING, pod, reason, message, now)
        if before is None:
            return True
        self._pending = replace(self._pending, lastTransitionTime=before.lastTransitionTime)
        return (before.reason, before.observedGeneration) != (reason, pod.metadata.generation)

    def gave(self, container: Container) -> None:
        """A running container has been given what is allotted to it."""
        self.actual[container.name] = container.resources
        self._save()

    def restarted(self, name: str) -> None:
        """A container began anew, with what is allotted to it."""
        if self.actual.pop(name, None) is not None:
            self._save()

    def failed(self, pod: Pod, message: str, now: str) -> None:
        self._in_progress = _condition(RESIZE_IN_PROGRESS, pod, "Error", message, now)

    def completed(self) -> int | None:
        """Everybody has what is allotted; says which generation was under way, if one was."""
        done, self._in_progress = self._in_progress, None
        return None if done is None else done.observedGeneration

    @property
    def under_way(self) -> bool:
        return self._in_progress is not None

    def _with_grant(self, container: Container) -> Container:
        return replace(
            container, resources=self._allocated.get(container.name, container.resources)
        )

    def _save(self) -> None:
        kept = _Kept(
            allocated={n: marks.to_text(r) for n, r in self._allocated.items()},
            actual={n: marks.to_text(r) for n, r in self.actual.items()},
            whole=None if self._whole is None else marks.to_text(self._whole),
        )
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(self._file, msgspec.json.encode(kept))


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


def summary(prefix: str, pod: Pod, generation: int, error: str = "") -> str:
    """What the events about a resize say: the resources of every container."""
    parts: dict[str, Any] = {}
    for key in ("initContainers", "containers"):
        found = [
            {"name": c.name, "resources": msgspec.json.decode(marks.to_text(c.resources))}
            for c in getattr(pod.spec, key)
        ]
        if found:
            parts[key] = found
    parts["generation"] = generation
    if error:
        parts["error"] = error
    return f"{prefix}: {msgspec.json.encode(parts).decode()}"
