"""Plan: what has to be done for a pod to become what its spec says. Pure: looks and decides.

A plan is only the next steps. Whoever carries it out looks again and asks for another, until there
is nothing left to do; so it does not matter where an agent was when it died.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.machinery.durations import SECOND, format_duration
from kedge.node import marks
from kedge.node.backoff import CRASHES, Delay
from kedge.node.ending import Ending, deadline_of, ending
from kedge.node.observed import NOTHING, Observed
from kedge.node.restarts import restarts, restarts_all, survives_failure
from kedge.node.runtime import runtime
from kedge.node.runtime.runtime import State

KEPT = 2
"""Containers of one name that are kept: the newest and the one before, for its state and logs."""
PULL_ERROR_SHOWN = 5.0
"""Seconds for which a failed pull shows its own reason, before it is ImagePullBackOff."""


THE_POD = ""
"""Where the failures of steps that concern the whole pod are kept."""
A_RESIZE = "/resize"
"""Where a failed resize is kept; no container can have such a name."""


class Kind(StrEnum):
    """Which list of the spec a container stands in."""

    INIT = "initContainers"
    MAIN = "containers"
    EPHEMERAL = "ephemeralContainers"


class Cause(StrEnum):
    """Why a container is stopped, as far as it decides how long it may take."""

    OTHER = ""
    STARTUP = "startup"
    LIVENESS = "liveness"


@dataclass(frozen=True, slots=True)
class RunSandbox:
    """Make a sandbox for the pod."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopSandbox:
    """Take a sandbox down; its containers stay listed."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    """Forget a sandbox of which nothing is needed any more."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container, from its image to its postStart hook."""

    kind: Kind
    name: str
    attempt: int
    delay: Delay | None = None
    """What it will have to wait if it fails soon, when this is not its first start."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop one container."""

    container: str
    name: str
    grace: float
    message: str
    after: frozenset[str] = frozenset()
    """Names of the containers that must have ended before."""
    hook: bool = True
    """Whether there is time for its preStop hook."""


@dataclass(frozen=True, slots=True)
class StopAll:
    """Stop containers side by side, each when its turn has come."""

    stops: tuple[Stop, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Forget a container that does not run."""

    container: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Give running containers what is now allotted to them."""

    names: tuple[str, ...]


Action = RunSandbox | StopSandbox | RemoveSandbox | Start | Stop | StopAll | Remove | Resize


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something could not be done and waits to be tried again."""

    reason: str
    message: str
    at: float
    delay: Delay
    pull: bool = False
    image: str = ""

    @property
    def until(self) -> float:
        return self.at + self.delay.seconds


@dataclass(frozen=True)
class Health:
    """What the probes found, by id of the container; one that is missing has not been decided."""

    startup: Mapping[str, bool] = field(default_factory=dict)
    liveness: Mapping[str, bool] = field(default_factory=dict)
    readiness: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Situation:
    """All that a plan depends on."""

    pod: Pod
    """With the resources that are allotted to it, which may not be those it now asks for."""
    now: float
    """Seconds since the epoch."""
    observed: Observed = NOTHING
    health: Health = field(default_factory=Health)
    crashes: Mapping[str, Delay] = field(default_factory=dict)
    """By name of the container: how long it waits after its latest failure."""
    failures: Mapping[str, Failure] = field(default_factory=dict)
    """By name of the container, or THE_POD, or A_RESIZE."""
    actual: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    """By name of the container: what it was last given, where that is not what it began with."""
    restart_counts: Mapping[str, int] = field(default_factory=dict)
    """By name of the container: how often it began again, for those that the runtime has lost."""
    removed: bool = False
    """The pod's object is gone from the API."""
    evicted: str = ""
    """Why the pod has to go, if it uses more than it may."""


@dataclass(frozen=True)
class Plan:
    """The next steps."""

    actions: tuple[Action, ...] = ()
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    """By name: the containers that would be started if it were time."""
    wake: float | None = None
    """When to look again though nothing has happened, in seconds since the epoch."""
    ending: Ending | None = None
    """The pod is to end; once there are no actions left, it has."""


def plan(situation: Situation) -> Plan:
    """What to do next for a pod."""
    end = ending(
        situation.pod,
        situation.observed,
        situation.now,
        removed=situation.removed,
        evicted=situation.evicted,
    )
    if end is not None:
        return Plan(actions=_end(situation, end), ending=end)
    steps = _Steps(situation)
    steps.decide()
    return steps.plan()


# How a pod ends.


def _end(situation: Situation, end: Ending) -> tuple[Action, ...]:
    seen = situation.observed
    if seen.running:
        return (StopAll(tuple(_stops(situation.pod, seen.running, end))),)
    return tuple(StopSandbox(sandbox.id) for sandbox in seen.sandboxes if sandbox.ready)


def _stops(pod: Pod, running: Sequence[runtime.Container], end: Ending) -> Iterator[Stop]:
    order = _turns(pod, {record.name for record in running})
    for record in running:
        yield Stop(
            record.id,
            record.name,
            end.grace,
            f"Stopping container {record.name}",
            after=order.get(record.name, frozenset()),
        )


def _turns(pod: Pod, running: set[str]) -> dict[str, frozenset[str]]:
    """Whom each sidecar outlives: the main containers, and the sidecars that came after it."""
    later = {c.name for c in pod.spec.containers}
    order: dict[str, frozenset[str]] = {}
    for container in reversed(pod.spec.initContainers):
        if is_sidecar(container):
            order[container.name] = frozenset(later & running)
            later.add(container.name)
    return order


# How a pod runs.


class _Steps:
    """Collects the next steps of a pod that is to run."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._pod = situation.pod
        self._seen = situation.observed
        self._actions: list[Action] = []
        self._waiting: dict[str, Waiting] = {}
        self._wakes: list[float] = []
        self._resized: list[str] = []

    def plan(self) -> Plan:
        if self._resized:
            self._actions.append(Resize(tuple(self._resized)))
        wake = min(self._wakes, default=None)
        return Plan(tuple(self._actions), self._waiting, wake)

    def decide(self) -> None:
        self._mind_deadline()
        self._clear()
        if self._seen.ready_sandbox is None:
            self._sandbox()
        elif self._restarting_all():
            self._restart_all()
        else:
            self._containers()

    def _mind_deadline(self) -> None:
        deadline = deadline_of(self._pod)
        if deadline is not None:
            self._wakes.append(deadline)

    def _clear(self) -> None:
        """Forget containers and sandboxes of which neither state nor logs are wanted any more."""
        kept: set[str] = set()
        for records in self._seen.by_name.values():
            kept |= {record.sandbox for record in records[:KEPT]}
            self._actions += [Remove(r.id) for r in records[KEPT:] if r.state is State.EXITED]
        for sandbox in self._seen.sandboxes[1:]:
            if sandbox.ready:
                self._actions.append(StopSandbox(sandbox.id))
            elif sandbox.id not in kept:
                self._actions.append(RemoveSandbox(sandbox.id))

    # The sandbox.

    def _sandbox(self) -> None:
        old = self._seen.sandbox
        for record in self._seen.running:
            # A sandbox that is not ready lets nothing run; if something does, it is half gone.
            self._actions.append(Stop(record.id, record.name, 0, "Pod sandbox changed", hook=False))
        if not self._pod_waits():
            self._actions.append(RunSandbox(0 if old is None else old.attempt + 1))

    def _pod_waits(self) -> bool:
        """Whether a step of the whole pod has failed and it is not time to try again."""
        failure = self._situation.failures.get(THE_POD)
        if failure is None or failure.until <= self._situation.now:
            return False
        self._wakes.append(failure.until)
        return True

    # All containers at once.

    def _restarting_all(self) -> bool:
        return any(self._took_all_down(container) for _, container in self._regular())

    def _regular(self) -> Iterator[tuple[Kind, Container]]:
        yield from ((Kind.INIT, c) for c in self._pod.spec.initContainers)
        yield from ((Kind.MAIN, c) for c in self._pod.spec.containers)

    def _took_all_down(self, container: Container) -> bool:
        record = self._seen.current(container.name)
        return (
            record is not None
            and record.state is State.EXITED
            and restarts_all(container, record.exit_code)
        )

    def _restart_all(self) -> None:
        """Remove every container; those that asked for it last, for they are why we do so."""
        last: list[Action] = []
        for _, container in reversed(list(self._regular())):
            for record in self._seen.by_name.get(container.name, ()):
                if record.state is State.RUNNING:
                    self._actions.append(
                        Stop(record.id, record.name, 0, "RestartAllContainers", hook=False)
                    )
                gone = last if self._took_all_down(container) else self._actions
                gone.append(Remove(record.id))
        self._actions += last

    # The containers, in the order of a pod's start.

    def _containers(self) -> None:
        for ephemeral in self._pod.spec.ephemeralContainers:
            record = self._seen.newest(ephemeral.name)
            if record is None or record.state is State.CREATED:
                self._start(Kind.EPHEMERAL, ephemeral)
        begun = any(self._seen.current(c.name) is not None for c in self._pod.spec.containers)
        if self._initialize(begun) or begun:
            for container in self._pod.spec.containers:
                self._main(container)

    def _initialize(self, begun: bool) -> bool:
        """Take the init containers as far as they go; says whether the way is free for the rest."""
        containers = self._pod.spec.initContainers
        known = [i for i, c in enumerate(containers) if self._seen.current(c.name) is not None]
        reached = len(containers) if begun else (known[-1] if known else -1)
        for container in containers[: max(reached, 0)]:
            if is_sidecar(container):
                self._sidecar(container)
        if reached == len(containers):
            return True
        if reached >= 0 and not self._passed(containers[reached]):
            return False
        if reached + 1 < len(containers):
            self._start(Kind.INIT, containers[reached + 1])
            return False
        return True

    def _passed(self, container: Container) -> bool:
        """See to the last init container that was begun; says whether the next may follow."""
        if is_sidecar(container):
            return self._sidecar(container)
        record = self._seen.current(container.name)
        assert record is not None
        match record.state:
            case State.RUNNING:
                self._resize(Kind.INIT, container, record)
                return False
            case State.EXITED if record.exit_code == 0:
                return True
            case _:
                # One that fails for good ends the pod before we come here.
                self._start(Kind.INIT, container)
                return False

    def _sidecar(self, container: Container) -> bool:
        """Keep a sidecar running; says whether it has started."""
        record = self._seen.current(container.name)
        if record is None or record.state is not State.RUNNING:
            self._start(Kind.INIT, container)
            return False
        startup = self._startup(container, record)
        if startup is False:
            self._replace(Kind.INIT, container, record, "failed startup probe", Cause.STARTUP)
        elif marks.changed(container, record):
            self._replace(Kind.INIT, container, record, "definition changed", Cause.OTHER)
        elif self._situation.health.liveness.get(record.id) is False:
            self._replace(Kind.INIT, container, record, "failed liveness probe", Cause.LIVENESS)
        else:
            self._resize(Kind.INIT, container, record)
        return startup is True

    def _main(self, container: Container) -> None:
        record = self._seen.newest(container.name)
        if record is None or record.state is not State.RUNNING:
            if record is None or _begins_again(self._pod, container, record):
                self._start(Kind.MAIN, container)
            return
        health = self._situation.health
        if marks.changed(container, record):
            self._replace(Kind.MAIN, container, record, "definition changed", Cause.OTHER)
        elif health.liveness.get(record.id) is False:
            self._replace(Kind.MAIN, container, record, "failed liveness probe", Cause.LIVENESS)
        elif self._startup(container, record) is False:
            self._replace(Kind.MAIN, container, record, "failed startup probe", Cause.STARTUP)
        else:
            self._resize(Kind.MAIN, container, record)

    def _startup(self, container: Container, record: runtime.Container) -> bool | None:
        if container.startupProbe is None:
            return True
        return self._situation.health.startup.get(record.id)

    # Single containers.

    def _start(self, kind: Kind, container: Container) -> None:
        """Start a container, unless it has to wait."""
        if self._pod_waits() or self._held_back(container):
            return
        newest = self._seen.newest(container.name)
        if newest is not None and newest.state is State.CREATED:
            if newest.pid:
                # An agent died while it was being started. Whether it runs will be told.
                return
            # An agent died between making and starting it. It never ran, so it does not count.
            self._actions.append(Remove(newest.id))
            self._actions.append(Start(kind, container.name, newest.attempt))
            return
        self._actions.append(
            Start(kind, container.name, self._attempt(container), self._next_delay(container))
        )

    def _held_back(self, container: Container) -> bool:
        now = self._situation.now
        crashed = self._crashed_at(container)
        delay = self._known_delay(container)
        if crashed is not None and delay is not None and CRASHES.waits(delay, crashed, now):
            self._waiting[container.name] = _crash_loop(self._pod, container, delay)
            self._wakes.append(crashed + delay.seconds)
            return True
        failure = self._situation.failures.get(container.name)
        if failure is None:
            return False
        self._waiting[container.name] = _shown(failure, now)
        if now >= failure.until:
            return False
        shown_until = failure.at + PULL_ERROR_SHOWN
        self._wakes.append(shown_until if failure.pull and now < shown_until else failure.until)
        return True

    def _crashed_at(self, container: Container) -> float | None:
        """When the latest container of the name ended."""
        for record in self._seen.by_name.get(container.name, ()):
            if record.state is State.EXITED:
                return record.finished_at / SECOND
        return None

    def _next_delay(self, container: Container) -> Delay | None:
        crashed = self._crashed_at(container)
        if crashed is None:
            return None
        return CRASHES.after(self._known_delay(container), crashed, self._situation.now)

    def _known_delay(self, container: Container) -> Delay | None:
        """How long a container waits that keeps failing; another image is another chance."""
        newest = self._seen.newest(container.name)
        if newest is not None and marks.changed(container, newest):
            return None
        return self._situation.crashes.get(container.name)

    def _attempt(self, container: Container) -> int:
        newest = self._seen.newest(container.name)
        if newest is not None:
            return newest.attempt + 1
        return self._situation.restart_counts.get(container.name, 0)

    def _replace(
        self,
        kind: Kind,
        container: Container,
        record: runtime.Container,
        why: str,
        cause: Cause,
    ) -> None:
        """Stop a container that runs, and start it again if it may be."""
        again = cause is Cause.OTHER or survives_failure(self._pod.spec, container)
        prefix = "Init container" if kind is Kind.INIT else "Container"
        message = f"{prefix} {container.name} {why}"
        if again and kind is Kind.MAIN:
            message += ", will be restarted"
        grace = _grace(self._pod, container, cause)
        self._actions.append(Stop(record.id, container.name, grace, message))
        if again:
            self._start(kind, container)

    def _resize(self, kind: Kind, container: Container, record: runtime.Container) -> None:
        """Bring what a running container is given in line with what is allotted to it."""
        actual = self._situation.actual.get(container.name) or marks.started_with(record)
        differing = [] if actual is None else _differing(actual, container.resources)
        if not differing:
            return
        policies = {p.resourceName: p.restartPolicy for p in container.resizePolicy}
        if any(policies.get(name) == "RestartContainer" for name in differing):
            message = f"Container {container.name} resize requires restart"
            grace = _grace(self._pod, container, Cause.OTHER)
            self._actions.append(Stop(record.id, container.name, grace, message))
            self._start(kind, container)
        elif not self._resize_waits():
            self._resized.append(container.name)

    def _resize_waits(self) -> bool:
        failure = self._situation.failures.get(A_RESIZE)
        if failure is None or failure.until <= self._situation.now:
            return False
        self._wakes.append(failure.until)
        return True


def _begins_again(pod: Pod, container: Container, record: runtime.Container) -> bool:
    return record.state is State.CREATED or restarts(pod.spec, container, record.exit_code)


def _differing(one: ResourceRequirements, other: ResourceRequirements) -> list[str]:
    """The resources of which a container is given something else than it is to have."""
    return [
        name
        for name in ("cpu", "memory")
        if one.limits.get(name) != other.limits.get(name)
        or one.requests.get(name) != other.requests.get(name)
    ]


def _grace(pod: Pod, container: Container, cause: Cause) -> float:
    """Seconds that a container gets to end while its pod goes on."""
    probe = {Cause.STARTUP: container.startupProbe, Cause.LIVENESS: container.livenessProbe}.get(
        cause
    )
    if probe is not None and probe.terminationGracePeriodSeconds is not None:
        return float(probe.terminationGracePeriodSeconds)
    return float(pod.spec.terminationGracePeriodSeconds or 0)


def _crash_loop(pod: Pod, container: Container, delay: Delay) -> Waiting:
    text = format_duration(int(delay.seconds * SECOND))
    message = f"back-off {text} restarting failed container={container.name} pod={label(pod)}"
    return Waiting("CrashLoopBackOff", message)


def label(pod: Pod) -> str:
    """A pod as messages name it."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"


def _shown(failure: Failure, now: float) -> Waiting:
    if failure.pull and now >= failure.at + PULL_ERROR_SHOWN:
        message = f'Back-off pulling image "{failure.image}": {failure.reason}: {failure.message}'
        return Waiting("ImagePullBackOff", message)
    return Waiting(failure.reason, failure.message)
