"""Phase: the one word that sums up how far a pod has come."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.pod.status import ContainerStatus
from kedge.node.restarts import restarts

RESTARTING_ALL = "RestartingAllContainers"


class _Alive(Enum):
    """Where a container is that has not ended."""

    UNKNOWN = auto()
    WAITING = auto()
    RUNNING = auto()


@dataclass(frozen=True, slots=True)
class _Ended:
    """A container that has run."""

    well: bool
    again: bool
    """It will be started again if anything is."""


_Stage = _Alive | _Ended


def phase(
    spec: PodSpec, statuses: Sequence[ContainerStatus], *, terminal: bool, initialized: bool
) -> str:
    """`terminal`: nothing will be started any more. `initialized`: main containers have begun."""
    known = {status.name: status for status in statuses}
    initial = [_stage(spec, c, known) for c in spec.initContainers if not is_sidecar(c)]
    if any(isinstance(stage, _Ended) and not (stage.well or stage.again) for stage in initial):
        return "Failed"
    if any(isinstance(stage, _Alive) for stage in initial):
        return "Pending"
    sidecars = [c for c in spec.initContainers if is_sidecar(c)]
    if not initialized and any(_not_started(known.get(c.name)) for c in sidecars):
        return "Pending"
    main = [_stage(spec, c, known) for c in spec.containers]
    return _summed_up(main, list(_of_sidecars(sidecars, known)), terminal)


def _summed_up(main: list[_Stage], sidecars: list[_Alive], terminal: bool) -> str:
    alive = [stage for stage in main if isinstance(stage, _Alive)] + sidecars
    if _Alive.WAITING in alive or _Alive.UNKNOWN in alive:
        return "Pending"
    if alive:
        return "Running"
    ended = [stage for stage in main if isinstance(stage, _Ended)]
    if not terminal and any(stage.again for stage in ended):
        return "Running"
    return "Succeeded" if all(stage.well for stage in ended) else "Failed"


def _stage(spec: PodSpec, container: Container, known: Mapping[str, ContainerStatus]) -> _Stage:
    status = known.get(container.name)
    if status is None:
        return _Alive.UNKNOWN
    if status.state.running is not None:
        return _Alive.RUNNING
    ended = status.state.terminated or status.lastState.terminated
    if ended is None:
        return _Alive.WAITING
    again = ended.reason == RESTARTING_ALL or restarts(spec, container, ended.exitCode)
    # A main container that waits has not succeeded, whatever its last run did.
    well = ended.exitCode == 0 and (status.state.terminated is not None or _initial(spec, status))
    return _Ended(well, again)


def _initial(spec: PodSpec, status: ContainerStatus) -> bool:
    return any(container.name == status.name for container in spec.initContainers)


def _of_sidecars(
    sidecars: Sequence[Container], known: Mapping[str, ContainerStatus]
) -> Iterator[_Alive]:
    """Sidecars keep a pod running, or from running; how they ended is of no account."""
    for container in sidecars:
        status = known.get(container.name)
        if status is None:
            yield _Alive.UNKNOWN
        elif status.state.running is not None:
            yield _Alive.RUNNING
        elif status.state.terminated is None and status.lastState.terminated is None:
            yield _Alive.WAITING


def _not_started(status: ContainerStatus | None) -> bool:
    if status is None:
        return True
    if status.state.running is not None:
        return not status.started
    return status.state.terminated is None and status.lastState.terminated is None
