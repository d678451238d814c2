"""The plan of a pod: the next actions that bring it from its observed state to its spec. Pure.

A plan holds only the next actions, not the whole way. The worker carries them out, observes the
runtime again and asks for another plan, until there is nothing to do. Therefore an agent may be
killed between any two actions: the plan of the next agent continues from what the runtime reports,
and no plan is stored. Three cases need care, because the agent died inside of an action:

- A container was created but not started: it is removed and started with the same attempt, so that
  restartCount does not count a run that never happened.
- A container was created and its process exists: the runtime is still starting it. The plan waits
  for the event, since a second start would run the program twice.
- A sandbox was created but the hosts file was not written: every start of a container writes it.

Crash loop delays are lost with the agent, as with a restarted kubelet: the first restart after that
is immediate, and the delays grow again.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.machinery.durations import SECOND
from kedge.node.pod import labels
from kedge.node.pod.actions import (
    Action,
    ContainerKind,
    RemoveContainer,
    RemoveSandbox,
    ResizeContainers,
    RunSandbox,
    StartContainer,
    StopContainer,
    StopContainers,
    StopSandbox,
)
from kedge.node.pod.backoff import CRASH_LOOP, BackoffDelay
from kedge.node.pod.restart_policy import restarts, restarts_all, survives_failure
from kedge.node.pod.runtime_cache import EMPTY, PodRuntimeState
from kedge.node.pod.termination import PodTermination, deadline_of, termination
from kedge.node.pod.waiting import POD_STEP, RESIZE_STEP, StepFailure, WaitingReason, crash_loop
from kedge.node.pod.worker_state import WorkerState
from kedge.node.runtime.runtime import RunState, RuntimeContainer

KEPT_CONTAINERS = 2
"""Containers of one name that are kept: the newest, and the previous one for its state and logs."""


class StopCause(StrEnum):
    """Why a running container is replaced, as far as it determines the grace period."""

    OTHER = ""
    STARTUP = "startup"
    LIVENESS = "liveness"


class ProbeVerdicts(msgspec.Struct, frozen=True):
    """Results of probes by container id; a container without a verdict is missing."""

    startup: Mapping[str, bool] = msgspec.field(default_factory=dict)
    liveness: Mapping[str, bool] = msgspec.field(default_factory=dict)
    readiness: Mapping[str, bool] = msgspec.field(default_factory=dict)


class PlanInput(msgspec.Struct, frozen=True):
    """Everything that a plan depends on."""

    pod: Pod
    """The pod with its allocated resources, which may differ from those in its spec."""
    now: float
    """Seconds since the epoch."""
    state: WorkerState = msgspec.field(default_factory=WorkerState)
    observed: PodRuntimeState = EMPTY
    verdicts: ProbeVerdicts = msgspec.field(default_factory=ProbeVerdicts)
    crash_delays: Mapping[str, BackoffDelay] = msgspec.field(default_factory=dict)
    """By container name: the delay after its latest failure."""
    failures: Mapping[str, StepFailure] = msgspec.field(default_factory=dict)
    """By container name, POD_STEP or RESIZE_STEP."""
    actuated: Mapping[str, ResourceRequirements] = msgspec.field(default_factory=dict)
    """By container name: the resources of the latest resize, if it was resized since its start."""
    restart_counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By container name: the next attempt of containers that the runtime does not know any more."""


class PodPlan(msgspec.Struct, frozen=True):
    """The next actions."""

    actions: tuple[Action, ...] = ()
    waiting: Mapping[str, WaitingReason] = msgspec.field(default_factory=dict)
    """By name: the containers that have to wait before they are started."""
    wake: float | None = None
    """When to plan again even if nothing happens, in seconds since the epoch."""
    termination: PodTermination | None = None
    """Set if the pod ends; it has ended when there are no actions left."""


def plan(given: PlanInput) -> PodPlan:
    """Return the next actions for a pod."""
    if given.state.rejection is not None:
        # A rejected pod never had a container; only its status is left to write.
        return PodPlan(termination=PodTermination(0))
    end = termination(given.pod, given.observed, given.now, given.state)
    if end is not None:
        return PodPlan(actions=_termination_actions(given, end), termination=end)
    planner = _Planner(given)
    planner.decide()
    return planner.plan()


# A pod that ends.


def _termination_actions(given: PlanInput, end: PodTermination) -> tuple[Action, ...]:
    """Stop containers first, then sandboxes: a sandbox holds the network that hooks need."""
    observed = given.observed
    if observed.running:
        return (StopContainers(tuple(_stops(given.pod, observed.running, end))),)
    return tuple(StopSandbox(sandbox.id) for sandbox in observed.sandboxes if sandbox.ready)


def _stops(
    pod: Pod, running: Sequence[RuntimeContainer], end: PodTermination
) -> Iterator[StopContainer]:
    order = _stop_order(pod, {record.name for record in running})
    for record in running:
        yield StopContainer(
            record.id,
            record.name,
            end.grace,
            f"Stopping container {record.name}",
            after=order.get(record.name, frozenset()),
        )


def _stop_order(pod: Pod, running: set[str]) -> dict[str, frozenset[str]]:
    """Return for each sidecar the running containers that end before it: the main containers and
    the sidecars that started after it."""
    later = {c.name for c in pod.spec.containers}
    order: dict[str, frozenset[str]] = {}
    for container in reversed(pod.spec.initContainers):
        if is_sidecar(container):
            order[container.name] = frozenset(later & running)
            later.add(container.name)
    return order


# A pod that runs.


class _Planner:
    """Collects the next actions of a pod that runs."""

    def __init__(self, given: PlanInput) -> None:
        self._given = given
        self._pod = given.pod
        self._observed = given.observed
        self._actions: list[Action] = []
        self._waiting: dict[str, WaitingReason] = {}
        self._wakes: list[float] = []
        self._resized: list[str] = []

    def plan(self) -> PodPlan:
        if self._resized:
            self._actions.append(ResizeContainers(tuple(self._resized)))
        wake = min(self._wakes, default=None)
        return PodPlan(tuple(self._actions), self._waiting, wake)

    def decide(self) -> None:
        """Decide in the order of dependency: no container without a sandbox, no single container
        while all of them restart."""
        self._wake_at_deadline()
        self._remove_old()
        if self._observed.ready_sandbox is None:
            self._sandbox()
        elif self._restarts_all_containers():
            self._restart_all_containers()
        else:
            self._containers()

    def _wake_at_deadline(self) -> None:
        deadline = deadline_of(self._pod)
        if deadline is not None:
            self._wakes.append(deadline)

    def _remove_old(self) -> None:
        """Remove containers and sandboxes whose state and logs are not needed any more."""
        kept: set[str] = set()
        for records in self._observed.by_name.values():
            kept |= {record.sandbox for record in records[:KEPT_CONTAINERS]}
            self._actions += [
                RemoveContainer(r.id)
                for r in records[KEPT_CONTAINERS:]
                if r.state is RunState.EXITED
            ]
        for sandbox in self._observed.sandboxes[1:]:
            if sandbox.ready:
                self._actions.append(StopSandbox(sandbox.id))
            elif sandbox.id not in kept:
                self._actions.append(RemoveSandbox(sandbox.id))

    # The sandbox.

    def _sandbox(self) -> None:
        old = self._observed.sandbox
        for record in self._observed.running:
            # Containers of a sandbox that is not ready should have ended with it. One that still
            # runs has lost its network namespace, so its hook cannot run either.
            self._actions.append(
                StopContainer(record.id, record.name, 0, "Pod sandbox changed", hook=False)
            )
        if not self._step_waits(POD_STEP):
            self._actions.append(RunSandbox(0 if old is None else old.attempt + 1))

    def _step_waits(self, step: str) -> bool:
        """Return whether a failed step of the pod is not due for its next try."""
        failure = self._given.failures.get(step)
        if failure is None or failure.until <= self._given.now:
            return False
        self._wakes.append(failure.until)
        return True

    # All containers at once.

    def _restarts_all_containers(self) -> bool:
        return any(self._requests_restart_of_all(c) for c in self._regular_containers())

    def _regular_containers(self) -> Iterator[Container]:
        yield from self._pod.spec.initContainers
        yield from self._pod.spec.containers

    def _requests_restart_of_all(self, container: Container) -> bool:
        record = self._observed.current(container.name)
        return (
            record is not None
            and record.state is RunState.EXITED
            and restarts_all(container, record.exit_code)
        )

    def _restart_all_containers(self) -> None:
        """Stop and remove every container.

        The containers that requested the restart are removed last: their exit status is the only
        trace of the request, so an agent that dies midway plans the rest again.
        """
        requesters: list[Action] = []
        for container in reversed(list(self._regular_containers())):
            for record in self._observed.by_name.get(container.name, ()):
                if record.state is RunState.RUNNING:
                    self._actions.append(
                        StopContainer(record.id, record.name, 0, "RestartAllContainers", hook=False)
                    )
                is_requester = self._requests_restart_of_all(container)
                removals = requesters if is_requester else self._actions
                removals.append(RemoveContainer(record.id))
        self._actions += requesters

    # The containers, in the order of a pod's start.

    def _containers(self) -> None:
        for ephemeral in self._pod.spec.ephemeralContainers:
            record = self._observed.newest(ephemeral.name)
            if record is None or record.state is RunState.CREATED:
                self._start(ContainerKind.EPHEMERAL, ephemeral)
        begun = any(self._observed.current(c.name) is not None for c in self._pod.spec.containers)
        if self._initialize(begun) or begun:
            for container in self._pod.spec.containers:
                self._main(container)

    def _initialize(self, begun: bool) -> bool:
        """Advance the init containers; return whether the main containers may start.

        The position is derived from the runtime: the last init container that has a record in this
        sandbox. Init containers before it have completed, and their records may be removed, so
        they are not looked at again; only sidecars among them are kept running. `begun` means that
        a main container exists, so all init containers have completed, even if their records are
        gone.
        """
        containers = self._pod.spec.initContainers
        known = [i for i, c in enumerate(containers) if self._observed.current(c.name) is not None]
        reached = len(containers) if begun else (known[-1] if known else -1)
        for container in containers[: max(reached, 0)]:
            if is_sidecar(container):
                self._sidecar(container)
        if reached == len(containers):
            return True
        if reached >= 0 and not self._passed(containers[reached]):
            return False
        if reached + 1 < len(containers):
            self._start(ContainerKind.INIT, containers[reached + 1])
            return False
        return True

    def _passed(self, container: Container) -> bool:
        """Advance the last init container that has begun; return whether the next may start."""
        if is_sidecar(container):
            return self._sidecar(container)
        record = self._observed.current(container.name)
        assert record is not None
        match record.state:
            case RunState.RUNNING:
                self._resize(ContainerKind.INIT, container, record)
                return False
            case RunState.EXITED if record.exit_code == 0:
                return True
            case _:
                # A failure that is not retried has ended the pod before (termination.finished).
                self._start(ContainerKind.INIT, container)
                return False

    def _sidecar(self, container: Container) -> bool:
        """Keep a sidecar running; return whether it has started."""
        kind, record = ContainerKind.INIT, self._observed.current(container.name)
        if record is None or record.state is not RunState.RUNNING:
            self._start(kind, container)
            return False
        startup = self._startup(container, record)
        if startup is False:
            self._replace(kind, container, record, "failed startup probe", StopCause.STARTUP)
        elif labels.changed(container, record):
            self._replace(kind, container, record, "definition changed", StopCause.OTHER)
        elif self._given.verdicts.liveness.get(record.id) is False:
            self._replace(kind, container, record, "failed liveness probe", StopCause.LIVENESS)
        else:
            self._resize(kind, container, record)
        return startup is True

    def _main(self, container: Container) -> None:
        kind, record = ContainerKind.MAIN, self._observed.newest(container.name)
        if record is None or record.state is not RunState.RUNNING:
            if record is None or _starts_again(self._pod, container, record):
                self._start(kind, container)
            return
        if labels.changed(container, record):
            self._replace(kind, container, record, "definition changed", StopCause.OTHER)
        elif self._given.verdicts.liveness.get(record.id) is False:
            self._replace(kind, container, record, "failed liveness probe", StopCause.LIVENESS)
        elif self._startup(container, record) is False:
            self._replace(kind, container, record, "failed startup probe", StopCause.STARTUP)
        else:
            self._resize(kind, container, record)

    def _startup(self, container: Container, record: RuntimeContainer) -> bool | None:
        if container.startupProbe is None:
            return True
        return self._given.verdicts.startup.get(record.id)

    # Single containers.

    def _start(self, kind: ContainerKind, container: Container) -> None:
        """Start a container, unless it has to wait."""
        if self._step_waits(POD_STEP) or self._backs_off(container):
            return
        newest = self._observed.newest(container.name)
        if newest is not None and newest.state is RunState.CREATED:
            if newest.pid:
                # An agent died during the start. The runtime reports whether the start succeeds.
                return
            # An agent died between create and start. The container never ran: same attempt.
            self._actions.append(RemoveContainer(newest.id))
            self._actions.append(StartContainer(kind, container.name, newest.attempt))
            return
        self._actions.append(
            StartContainer(
                kind, container.name, self._attempt(container), self._next_delay(container)
            )
        )

    def _backs_off(self, container: Container) -> bool:
        """Return whether a container waits after a crash or a failed start."""
        now = self._given.now
        crashed = self._crashed_at(container)
        delay = self._crash_delay(container)
        if crashed is not None and delay is not None and CRASH_LOOP.waits(delay, crashed, now):
            self._waiting[container.name] = crash_loop(self._pod, container, delay)
            self._wakes.append(crashed + delay.seconds)
            return True
        failure = self._given.failures.get(container.name)
        if failure is None:
            return False
        # Also if the retry is due: the status shows the failure until the start succeeds.
        self._waiting[container.name] = failure.shown(now)
        if now >= failure.until:
            return False
        self._wakes.append(failure.next_change(now))
        return True

    def _crashed_at(self, container: Container) -> float | None:
        """Return when the latest container of this name ended."""
        for record in self._observed.by_name.get(container.name, ()):
            if record.state is RunState.EXITED:
                return record.finished_at / SECOND
        return None

    def _next_delay(self, container: Container) -> BackoffDelay | None:
        crashed = self._crashed_at(container)
        if crashed is None:
            return None
        return CRASH_LOOP.after(self._crash_delay(container), crashed, self._given.now)

    def _crash_delay(self, container: Container) -> BackoffDelay | None:
        """Return the delay of a container that keeps failing; a new image starts without one."""
        newest = self._observed.newest(container.name)
        if newest is not None and labels.changed(container, newest):
            return None
        return self._given.crash_delays.get(container.name)

    def _attempt(self, container: Container) -> int:
        newest = self._observed.newest(container.name)
        if newest is not None:
            return newest.attempt + 1
        return self._given.restart_counts.get(container.name, 0)

    def _replace(
        self,
        kind: ContainerKind,
        container: Container,
        record: RuntimeContainer,
        why: str,
        cause: StopCause,
    ) -> None:
        """Stop a running container, and start it again if its restart policy permits."""
        again = cause is StopCause.OTHER or survives_failure(self._pod.spec, container)
        prefix = "Init container" if kind is ContainerKind.INIT else "Container"
        message = f"{prefix} {container.name} {why}"
        if again and kind is ContainerKind.MAIN:
            message += ", will be restarted"
        grace = _grace(self._pod, container, cause)
        self._actions.append(StopContainer(record.id, container.name, grace, message))
        if again:
            self._start(kind, container)

    def _resize(self, kind: ContainerKind, container: Container, record: RuntimeContainer) -> None:
        """Apply the allocated resources to a running container, if they differ from the actuated
        ones."""
        actuated = self._given.actuated.get(container.name) or labels.started_with(record)
        differing = [] if actuated is None else _differing(actuated, container.resources)
        if not differing:
            return
        policies = {p.resourceName: p.restartPolicy for p in container.resizePolicy}
        if any(policies.get(name) == "RestartContainer" for name in differing):
            message = f"Container {container.name} resize requires restart"
            grace = _grace(self._pod, container, StopCause.OTHER)
            self._actions.append(StopContainer(record.id, container.name, grace, message))
            self._start(kind, container)
        elif not self._step_waits(RESIZE_STEP):
            self._resized.append(container.name)


def _starts_again(pod: Pod, container: Container, record: RuntimeContainer) -> bool:
    return record.state is RunState.CREATED or restarts(pod.spec, container, record.exit_code)


def _differing(actuated: ResourceRequirements, allocated: ResourceRequirements) -> list[str]:
    """Return the resources whose limit or request differs."""
    return [
        name
        for name in ("cpu", "memory")
        if actuated.limits.get(name) != allocated.limits.get(name)
        or actuated.requests.get(name) != allocated.requests.get(name)
    ]


def _grace(pod: Pod, container: Container, cause: StopCause) -> float:
    """Return the grace period of a container whose pod continues to run, in seconds."""
    probe = {
        StopCause.STARTUP: container.startupProbe,
        StopCause.LIVENESS: container.livenessProbe,
    }.get(cause)
    if probe is not None and probe.terminationGracePeriodSeconds is not None:
        return float(probe.terminationGracePeriodSeconds)
    return float(pod.spec.terminationGracePeriodSeconds or 0)
