"""The phase of a pod."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto

import msgspec

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.node.pod.restart_policy import restarts

RESTARTING_ALL = "RestartingAllContainers"


class _LiveStage(Enum):
    """The stage of a container that has not ended."""

    UNKNOWN = auto()
    WAITING = auto()
    RUNNING = auto()


class _ExitedStage(msgspec.Struct, frozen=True):
    """A container that has ended."""

    well: bool
    again: bool
    """Whether it is started again unless the pod ends."""


_Stage = _LiveStage | _ExitedStage


def phase(
    spec: PodSpec, statuses: Sequence[ContainerStatus], *, terminal: bool, initialized: bool
) -> str:
    """Return the phase; `terminal` means that no container will be started, `initialized` that the
    main containers have started."""
    known = {status.name: status for status in statuses}
    initial = [_stage(spec, c, known) for c in spec.initContainers if not is_sidecar(c)]
    if any(
        isinstance(stage, _ExitedStage) and not (stage.well or stage.again) for stage in initial
    ):
        return "Failed"
    if any(isinstance(stage, _LiveStage) for stage in initial):
        return "Pending"
    sidecars = [c for c in spec.initContainers if is_sidecar(c)]
    if not initialized and any(_not_started(known.get(c.name)) for c in sidecars):
        return "Pending"
    main = [_stage(spec, c, known) for c in spec.containers]
    return _phase_of(main, list(_of_sidecars(sidecars, known)), terminal)


def _phase_of(main: list[_Stage], sidecars: list[_LiveStage], terminal: bool) -> str:
    alive = [stage for stage in main if isinstance(stage, _LiveStage)] + sidecars
    if _LiveStage.WAITING in alive or _LiveStage.UNKNOWN in alive:
        return "Pending"
    if alive:
        return "Running"
    ended = [stage for stage in main if isinstance(stage, _ExitedStage)]
    if not terminal and any(stage.again for stage in ended):
        return "Running"
    return "Succeeded" if all(stage.well for stage in ended) else "Failed"


def _stage(spec: PodSpec, container: Container, known: Mapping[str, ContainerStatus]) -> _Stage:
    status = known.get(container.name)
    if status is None:
        return _LiveStage.UNKNOWN
    if status.state.running is not None:
        return _LiveStage.RUNNING
    ended = status.state.terminated or status.lastState.terminated
    if ended is None:
        return _LiveStage.WAITING
    again = ended.reason == RESTARTING_ALL or restarts(spec, container, ended.exitCode)
    # A main container that waits has not succeeded, even if its last run did.
    well = ended.exitCode == 0 and (status.state.terminated is not None or _initial(spec, status))
    return _ExitedStage(well, again)


def _initial(spec: PodSpec, status: ContainerStatus) -> bool:
    return any(container.name == status.name for container in spec.initContainers)


def _of_sidecars(
    sidecars: Sequence[Container], known: Mapping[str, ContainerStatus]
) -> Iterator[_LiveStage]:
    """Return the stages of the sidecars that have not ended; their exit codes do not matter."""
    for container in sidecars:
        status = known.get(container.name)
        if status is None:
            yield _LiveStage.UNKNOWN
        elif status.state.running is not None:
            yield _LiveStage.RUNNING
        elif status.state.terminated is None and status.lastState.terminated is None:
            yield _LiveStage.WAITING


def _not_started(status: ContainerStatus | None) -> bool:
    if status is None:
        return True
    if status.state.running is not None:
        return not status.started
    return status.state.terminated is None and status.lastState.terminated is None
