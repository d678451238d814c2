"""Runs the probes of one pod and keeps their verdicts."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.probe import Probe
from kedge.api.core_v1.pod.status import PodStatus
from kedge.machinery.clock import Clock
from kedge.machinery.durations import SECOND
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.pod.plan import ProbeVerdicts
from kedge.node.probes.exec import probe_exec
from kedge.node.probes.grpc_health import probe_grpc
from kedge.node.probes.http import probe_http
from kedge.node.probes.outcome import ProbeError, ProbeOutcome, ProbeResult
from kedge.node.probes.tcp import probe_tcp
from kedge.node.runtime import runtime
from kedge.node.runtime.runtime import Runtime

log = logging.getLogger(__name__)

TRIES = 3
"""Tries of a probe that cannot be executed, before it counts as no result for this period."""


class ProbeKind(StrEnum):
    """The kind of a probe."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


class ProbeTarget(msgspec.Struct, frozen=True):
    """A running container with probes."""

    container: Container
    record: runtime.RuntimeContainer


RecordEvent = Callable[[str, str, str, str], None]
"""Records an event: container name, type, reason, message."""


class Prober:
    """The probes of one pod. The owner calls `watch` when the running containers change."""

    def __init__(
        self,
        run_in: Runtime,
        clock: Clock,
        *,
        ip: Callable[[], str],
        record: RecordEvent,
        changed: Callable[[], None],
        network: NetworkPlace = MACHINE,
    ) -> None:
        """`network` is where pods have their addresses."""
        self._network = network
        self._runtime = run_in
        self._clock = clock
        self._ip = ip
        self._record = record
        self._changed = changed
        self._startup: dict[str, bool] = {}
        self._liveness: dict[str, bool] = {}
        self._readiness: dict[str, bool] = {}
        self._tasks: dict[tuple[str, ProbeKind], asyncio.Task[None]] = {}

    @property
    def verdicts(self) -> ProbeVerdicts:
        return ProbeVerdicts(dict(self._startup), dict(self._liveness), dict(self._readiness))

    def restore(self, status: PodStatus) -> None:
        """Take over the verdicts of a previous agent from the pod's status, so that a restart of
        the agent does not make ready containers unready."""
        for container in (*status.containerStatuses, *status.initContainerStatuses):
            identity = container.containerID.partition("://")[2]
            if identity and container.state.running is not None:
                if container.started:
                    self._startup[identity] = True
                if container.ready:
                    self._readiness[identity] = True

    def watch(self, targets: Iterable[ProbeTarget], *, ending: bool = False) -> None:
        """Probe these containers and no others; while a pod ends, only readiness probes run."""
        selected: dict[tuple[str, ProbeKind], tuple[ProbeTarget, Probe]] = {}
        for target in targets:
            for kind, probe in self._probes(target, ending):
                selected[target.record.id, kind] = target, probe
        for key in self._tasks.keys() - selected.keys():
            self._tasks.pop(key).cancel()
        for key, (target, probe) in selected.items():
            if key not in self._tasks:
                # The prober owns the task: it is cancelled with its probe.
                self._tasks[key] = asyncio.get_running_loop().create_task(
                    self._follow(target, key[1], probe)
                )

    def forget(self, running: set[str]) -> None:
        """Drop the verdicts of containers that do not run."""
        for known in (self._startup, self._liveness, self._readiness):
            for gone in known.keys() - running:
                del known[gone]

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _probes(self, target: ProbeTarget, ending: bool) -> Iterable[tuple[ProbeKind, Probe]]:
        container, identity = target.container, target.record.id
        if container.readinessProbe is not None and self._has_started(target):
            yield ProbeKind.READINESS, container.readinessProbe
        if ending:
            return
        if container.startupProbe is not None and identity not in self._startup:
            yield ProbeKind.STARTUP, container.startupProbe
        alive = self._liveness.get(identity) is not False
        if container.livenessProbe is not None and alive and self._has_started(target):
            yield ProbeKind.LIVENESS, container.livenessProbe

    def _has_started(self, target: ProbeTarget) -> bool:
        if target.container.startupProbe is None:
            return True
        return self._startup.get(target.record.id) is True

    async def _follow(self, target: ProbeTarget, kind: ProbeKind, probe: Probe) -> None:
        """Run a probe until its verdict is final, or until cancelled."""
        started = target.record.started_at / SECOND
        due = started + probe.initialDelaySeconds - self._clock.now().timestamp()
        if due > 0:
            await self._clock.sleep(due)
        last: bool | None = None
        run = 0
        while True:
            begun = self._clock.monotonic()
            is_healthy = await self._is_healthy(target, kind, probe)
            if is_healthy is not None:
                run = run + 1 if is_healthy is last else 1
                last = is_healthy
                needed = probe.successThreshold if is_healthy else probe.failureThreshold
                if run >= needed and self._decide(target, kind, is_healthy):
                    return
            spent = self._clock.monotonic() - begun
            await self._clock.sleep(max((probe.periodSeconds or 10) - spent, 0.01))

    def _decide(self, target: ProbeTarget, kind: ProbeKind, is_healthy: bool) -> bool:
        """Store a verdict; return whether the probe is finished."""
        known = {
            ProbeKind.STARTUP: self._startup,
            ProbeKind.LIVENESS: self._liveness,
            ProbeKind.READINESS: self._readiness,
        }[kind]
        if known.get(target.record.id) is not is_healthy:
            known[target.record.id] = is_healthy
            self._changed()
        return kind is ProbeKind.STARTUP or (kind is ProbeKind.LIVENESS and not is_healthy)

    async def _is_healthy(self, target: ProbeTarget, kind: ProbeKind, probe: Probe) -> bool | None:
        """Run a probe once; return None if the result says nothing about the container."""
        name = target.container.name
        try:
            outcome = await self._attempt(target, probe)
        except ProbeError as error:
            text = f"{kind} probe errored and resulted in unknown state: {error}"
            self._record(name, "Warning", "Unhealthy", text)
            return None
        match outcome.result:
            case ProbeResult.WARNING:
                text = f"{kind} probe warning: {outcome.output}"
                self._record(name, "Warning", "ProbeWarning", text)
            case ProbeResult.FAILURE:
                text = f"{kind} probe failed: {outcome.output}"
                self._record(name, "Warning", "Unhealthy", text)
        return outcome.result is not ProbeResult.FAILURE

    async def _attempt(self, target: ProbeTarget, probe: Probe) -> ProbeOutcome:
        for left in reversed(range(TRIES)):
            try:
                return await self._ask(target, probe)
            except ProbeError:
                if not left:
                    raise
        raise AssertionError

    async def _ask(self, target: ProbeTarget, probe: Probe) -> ProbeOutcome:
        container, seconds = target.container, float(probe.timeoutSeconds or 1)
        if probe.exec is not None:
            identity = target.record.id
            return await probe_exec(probe.exec, container, identity, self._runtime, seconds)
        if probe.httpGet is not None:
            return await probe_http(
                probe.httpGet, container, self._ip(), self._clock, seconds, self._network
            )
        if probe.tcpSocket is not None:
            return await probe_tcp(
                probe.tcpSocket, container, self._ip(), self._clock, seconds, self._network
            )
        if probe.grpc is not None:
            return await probe_grpc(probe.grpc, self._ip(), seconds, self._network)
        raise ProbeError(f"missing probe handler for {container.name}")


def targets(pod: Pod, running: Iterable[runtime.RuntimeContainer]) -> list[ProbeTarget]:
    """Return the running containers of a pod that have probes."""
    specs = {c.name: c for c in (*pod.spec.initContainers, *pod.spec.containers)}
    return [
        ProbeTarget(specs[r.name], r) for r in running if r.name in specs and _probed(specs[r.name])
    ]


def _probed(container: Container) -> bool:
    probes = container.livenessProbe, container.readinessProbe, container.startupProbe
    return any(probe is not None for probe in probes)
