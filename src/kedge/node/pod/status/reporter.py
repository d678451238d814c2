"""Computes the status of one pod and passes changes to the status writer."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import PodStatus, ResourceStatus
from kedge.node.pod.dependencies import PodDependencies
from kedge.node.pod.plan import PodPlan
from kedge.node.pod.resources import AllocatedResources
from kedge.node.pod.runtime_cache import PodRuntimeState
from kedge.node.pod.status.conditions import limit_condition
from kedge.node.pod.status.status import StatusInput, final_status, pod_status, rejected_status
from kedge.node.pod.status.writer import StatusWriter
from kedge.node.pod.termination_message import termination_message
from kedge.node.pod.worker_state import ApiObjectState, WorkerState
from kedge.node.probes.prober import Prober
from kedge.node.runtime.runtime import RunState


class StatusReporter:
    """The status of one pod."""

    def __init__(
        self,
        pod: Pod,
        dependencies: PodDependencies,
        writer: StatusWriter,
        prober: Prober,
        resources: AllocatedResources,
    ) -> None:
        self.status = pod.status
        """The status of the latest report; before the first one that of the API."""
        self._dependencies = dependencies
        self._writer = writer
        self._prober = prober
        self._resources = resources
        self._messages: dict[str, str] = {}
        """Termination messages by container id."""

    def report(
        self,
        pod: Pod,
        state: WorkerState,
        plan: PodPlan,
        observed: PodRuntimeState,
        *,
        urgent: bool,
        terminal: bool = False,
    ) -> None:
        """Write the pod's status if it differs from the latest one or from that of the API."""
        status = self._computed(pod, state, plan, observed, terminal)
        changed = status != self.status or status != pod.status
        self.status = status
        if changed and state.api_object is not ApiObjectState.REMOVED:
            self._writer.write(pod, status, urgent=urgent)

    async def flush(self, uid: str) -> None:
        """Return when the API server has the latest status."""
        await self._writer.flush(uid)

    async def delete_object(self, pod: Pod) -> None:
        """Delete the pod's object after its last status."""
        await self._writer.delete(pod)

    def _computed(
        self,
        pod: Pod,
        state: WorkerState,
        plan: PodPlan,
        observed: PodRuntimeState,
        terminal: bool,
    ) -> PodStatus:
        now = self._dependencies.clock.now()
        allocated = self._resources.allocated_pod(pod)
        if (why := state.rejection) is not None:
            return rejected_status(allocated, why.reason, why.message, now)
        self._read_messages(pod, observed)
        given = StatusInput(
            now=now,
            observed=observed,
            previous=self.status,
            waiting=plan.waiting,
            verdicts=self._prober.verdicts,
            messages=self._messages,
            actuated=self._resources.actuated,
            resize=self._resources.conditions,
            limits=limit_condition(allocated, self._dependencies.runtime.capabilities),
            host_ips=self._dependencies.host_ips(),
            shared_ips=self.shared_ips(pod),
            terminal=terminal,
            termination=plan.termination,
            devices=self._device_health(pod),
        )
        status = pod_status(allocated, given)
        return final_status(allocated, status) if terminal else status

    def _device_health(self, pod: Pod) -> Mapping[str, Sequence[ResourceStatus]]:
        """Return the health of a pod's devices by container: of resources, then of claims."""
        allocated = self._dependencies.devices.health(pod.metadata.uid)
        claimed = self._dependencies.claims.health(pod)
        return {
            name: [*allocated.get(name, ()), *claimed.get(name, ())]
            for name in (*allocated, *(each for each in claimed if each not in allocated))
        }

    def with_status(self, pod: Pod) -> Pod:
        """Return the pod with the latest status, which the API may not have yet."""
        return replace(pod, status=self.status)

    def shared_ips(self, pod: Pod) -> list[str]:
        """Return the machine's addresses for a pod on its network; none for a pod with a network
        of its own, even if that has only a loopback interface."""
        machine = self._dependencies.runtime.capabilities
        shares = pod.spec.hostNetwork or not machine.namespaces
        return self._dependencies.host_ips() if shares else []

    # Termination messages.

    def _read_messages(self, pod: Pod, observed: PodRuntimeState) -> None:
        """Read the messages of ended containers, each once: the container may have written any
        amount, and its file is removed with it."""
        files, uid = self._dependencies.files, pod.metadata.uid
        for record in observed.containers:
            if record.state is RunState.EXITED and record.id not in self._messages:
                file = files.termination_log(uid, record.name, record.attempt)
                self._messages[record.id] = termination_message(record, file)
        self._prober.forget({record.id for record in observed.running})

    def remove_message(self, pod: Pod, observed: PodRuntimeState, container: str) -> None:
        """Forget the message of a removed container and remove its file."""
        self._messages.pop(container, None)
        for record in observed.containers:
            if record.id == container:
                self._dependencies.files.drop_termination_log(
                    pod.metadata.uid, record.name, record.attempt
                )
