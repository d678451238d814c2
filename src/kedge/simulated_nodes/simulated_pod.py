"""One pod of a simulated node, and its usage."""

from collections.abc import Mapping

from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.durations import SECOND
from kedge.node.pod.event_recorder import PodEventRecorder
from kedge.node.runtime.runtime import RunState
from kedge.simulated_nodes.pod_life import LifeStep, PodLife, scripts_of
from kedge.simulated_nodes.pod_usage import ContainerUsage, SimulatedPodUsage
from kedge.simulated_nodes.simulated_machine import SimulatedMachine


class SimulatedPod:
    """A pod as last seen, and its life so far."""

    __slots__ = ("address", "containers", "is_deleted", "life", "machine", "pod", "recorder")

    def __init__(self, pod: Pod, life: PodLife, machine: SimulatedMachine, address: str) -> None:
        self.pod = pod
        self.life = life
        self.machine = machine
        self.address = address
        self.containers: Mapping[str, ContainerUsage] = {}
        self.recorder: PodEventRecorder | None = None
        """Only pods that have waited for a container have one."""
        self.is_deleted = False
        """Whether the final delete was sent; finalizers may keep the object."""

    @property
    def version(self) -> int:
        return version_of(self.pod)

    @property
    def usage(self) -> SimulatedPodUsage:
        meta = self.pod.metadata
        return SimulatedPodUsage(meta.namespace, meta.name, meta.uid, self.containers)

    def follow_usage(self, step: LifeStep, now: float) -> None:
        """Let the usage of containers change with their lives."""
        scripts = scripts_of(self.pod, self.machine.annotations)
        found = dict(self.containers)
        for name, records in step.life.observed.by_name.items():
            known, record, script = found.get(name, ContainerUsage()), records[0], scripts.get(name)
            if record.state is RunState.RUNNING and script is not None:
                started = record.started_at / SECOND
                # A container that an earlier process started has used as much since then.
                begin = now if known.segments else started
                found[name] = known.changed(begin, started, script.cpu, script.memory)
            else:
                found[name] = known.ended(now)
        if found != self.containers:
            self.containers = found
            self.machine.has_news = True


def version_of(pod: Pod) -> int:
    """Return the version of a pod as a number."""
    version = pod.metadata.resourceVersion
    return int(version) if version.isdigit() else 0
