"""Prober: asks the containers of one pod how they are, and keeps what they answered."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.probe import Probe
from kedge.api.core_v1.pod.status import PodStatus
from kedge.machinery.clock import Clock
from kedge.machinery.durations import SECOND
from kedge.node.plan import Health
from kedge.node.probes.command import probe_exec
from kedge.node.probes.health_service import probe_grpc
from kedge.node.probes.http import probe_http
from kedge.node.probes.outcome import Outcome, ProbeError, Result
from kedge.node.probes.tcp import probe_tcp
from kedge.node.runtime import runtime
from kedge.node.runtime.runtime import Runtime

log = logging.getLogger(__name__)

TRIES = 3
"""How often a probe that could not be made is tried before it is given up for this time."""


class ProbeKind(StrEnum):
    """What a probe decides."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


@dataclass(frozen=True, slots=True)
class Target:
    """A running container that is asked."""

    container: Container
    record: runtime.Container


Tell = Callable[[str, str, str, str], None]
"""Records an event: container name, type, reason, message."""


class Prober:
    """The probes of one pod. Whoever owns it lists the running containers after each change."""

    def __init__(
        self,
        run_in: Runtime,
        clock: Clock,
        *,
        ip: Callable[[], str],
        tell: Tell,
        changed: Callable[[], None],
    ) -> None:
        self._runtime = run_in
        self._clock = clock
        self._ip = ip
        self._tell = tell
        self._changed = changed
        self._startup: dict[str, bool] = {}
        self._liveness: dict[str, bool] = {}
        self._readiness: dict[str, bool] = {}
        self._tasks: dict[tuple[str, ProbeKind], asyncio.Task[None]] = {}

    @property
    def health(self) -> Health:
        return Health(dict(self._startup), dict(self._liveness), dict(self._readiness))

    def take_over(self, status: PodStatus) -> None:
        """Believe what an earlier agent found, until we know better: nobody who was ready becomes
        unready because we begin."""
        for container in (*status.containerStatuses, *status.initContainerStatuses):
            identity = container.containerID.partition("://")[2]
            if identity and container.state.running is not None:
                if container.started:
                    self._startup[identity] = True
                if container.ready:
                    self._readiness[identity] = True

    def watch(self, targets: Iterable[Target], *, ending: bool = False) -> None:
        """Probe these containers and no others; of a pod that ends, only its readiness."""
        wanted: dict[tuple[str, ProbeKind], tuple[Target, Probe]] = {}
        for target in targets:
            for kind, probe in self._probes(target, ending):
                wanted[target.record.id, kind] = target, probe
        for key in self._tasks.keys() - wanted.keys():
            self._tasks.pop(key).cancel()
        for key, (target, probe) in wanted.items():
            if key not in self._tasks:
                self._tasks[key] = asyncio.get_running_loop().create_task(
                    self._follow(target, key[1], probe)
                )

    def forget(self, running: set[str]) -> None:
        """Drop what was found of containers that run no more."""
        for known in (self._startup, self._liveness, self._readiness):
            for gone in known.keys() - running:
                del known[gone]

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _probes(self, target: Target, ending: bool) -> Iterable[tuple[ProbeKind, Probe]]:
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

    def _has_started(self, target: Target) -> bool:
        if target.container.startupProbe is None:
            return True
        return self._startup.get(target.record.id) is True

    async def _follow(self, target: Target, kind: ProbeKind, probe: Probe) -> None:
        """Probe a container until its answer is final, or for ever."""
        started = target.record.started_at / SECOND
        due = started + probe.initialDelaySeconds - self._clock.now().timestamp()
        if due > 0:
            await self._clock.sleep(due)
        last: bool | None = None
        run = 0
        while True:
            begun = self._clock.monotonic()
            well = await self._well(target, kind, probe)
            if well is not None:
                run = run + 1 if well is last else 1
                last = well
                needed = probe.successThreshold if well else probe.failureThreshold
                if run >= needed and self._decide(target, kind, well):
                    return
            spent = self._clock.monotonic() - begun
            await self._clock.sleep(max((probe.periodSeconds or 10) - spent, 0.01))

    def _decide(self, target: Target, kind: ProbeKind, well: bool) -> bool:
        """Keep a result; says whether there is nothing more to find out."""
        known = {
            ProbeKind.STARTUP: self._startup,
            ProbeKind.LIVENESS: self._liveness,
            ProbeKind.READINESS: self._readiness,
        }[kind]
        if known.get(target.record.id) is not well:
            known[target.record.id] = well
            self._changed()
        return kind is ProbeKind.STARTUP or (kind is ProbeKind.LIVENESS and not well)

    async def _well(self, target: Target, kind: ProbeKind, probe: Probe) -> bool | None:
        """One attempt; None if it says nothing about the container."""
        name = target.container.name
        try:
            outcome = await self._attempt(target, probe)
        except ProbeError as error:
            text = f"{kind} probe errored and resulted in unknown state: {error}"
            self._tell(name, "Warning", "Unhealthy", text)
            return None
        match outcome.result:
            case Result.WARNING:
                text = f"{kind} probe warning: {outcome.output}"
                self._tell(name, "Warning", "ProbeWarning", text)
            case Result.FAILURE:
                text = f"{kind} probe failed: {outcome.output}"
                self._tell(name, "Warning", "Unhealthy", text)
        return outcome.result is not Result.FAILURE

    async def _attempt(self, target: Target, probe: Probe) -> Outcome:
        for left in reversed(range(TRIES)):
            try:
                return await self._ask(target, probe)
            except ProbeError:
                if not left:
                    raise
        raise AssertionError

    async def _ask(self, target: Target, probe: Probe) -> Outcome:
        container, seconds = target.container, float(probe.timeoutSeconds or 1)
        if probe.exec is not None:
            identity = target.record.id
            return await probe_exec(probe.exec, container, identity, self._runtime, seconds)
        if probe.httpGet is not None:
            return await probe_http(probe.httpGet, container, self._ip(), self._clock, seconds)
        if probe.tcpSocket is not None:
            return await probe_tcp(probe.tcpSocket, container, self._ip(), self._clock, seconds)
        if probe.grpc is not None:
            return await probe_grpc(probe.grpc, self._ip(), seconds)
        raise ProbeError(f"missing probe handler for {container.name}")


def targets(pod: Pod, running: Iterable[runtime.Container]) -> list[Target]:
    """The running containers of a pod that have probes."""
    specs = {c.name: c for c in (*pod.spec.initContainers, *pod.spec.containers)}
    return [Target(specs[r.name], r) for r in running if r.name in specs and _probed(specs[r.name])]


def _probed(container: Container) -> bool:
    probes = container.livenessProbe, container.readinessProbe, container.startupProbe
    return any(probe is not None for probe in probes)
