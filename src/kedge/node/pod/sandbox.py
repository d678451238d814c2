"""The preparation of a pod and the creation of its sandbox."""

import asyncio

import msgspec

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.network.dns import dns_of, uses_cluster_dns, within_limits
from kedge.node.pod.dependencies import ClaimFailure, PodDependencies, VolumeFailure
from kedge.node.pod.event_recorder import NORMAL, WARNING, PodEventRecorder
from kedge.node.pod.runtime_cache import RuntimeCache
from kedge.node.pod.runtime_specs import sandbox_spec
from kedge.node.pod.step_failures import StepFailures
from kedge.node.pod.timeouts import unless_set
from kedge.node.pod.waiting import POD_STEP
from kedge.node.runtime.runtime import DnsConfig, RuntimeFailure


class SandboxStarter(msgspec.Struct, frozen=True):
    """Prepares one pod and creates its sandboxes. A failure is recorded and retried later."""

    dependencies: PodDependencies
    cache: RuntimeCache
    recorder: PodEventRecorder
    failures: StepFailures
    forced_stop: asyncio.Event

    async def prepare(self, pod: Pod) -> str | None:
        """Create cgroup and directories and mount the volumes. Return the pod's cgroup, or None
        after a failure. Idempotent, also after a restart of the agent. Raises WorkInterrupted."""
        dependencies = self.dependencies
        try:
            cgroup = dependencies.cgroups.ensure(pod)
            dependencies.files.make(pod)
        except OSError as error:
            text = f"unable to ensure pod container exists: {error}"
            self._record_failure("FailedCreatePodContainer", text)
            return None
        try:
            await unless_set(self.forced_stop, dependencies.volumes.mount(pod))
        except VolumeFailure as error:
            self._record_failure(error.reason, error.message)
            return None
        return cgroup

    def record_change(self) -> None:
        """Record that a new sandbox replaces the pod's previous one."""
        text = "Pod sandbox changed, it will be killed and re-created."
        self.recorder.record_pod(NORMAL, "SandboxChanged", text)

    async def start(self, pod: Pod, attempt: int, cgroup: str) -> None:
        """Have the resource claims of a prepared pod prepared, and create its sandbox. Raises
        WorkInterrupted."""
        dependencies = self.dependencies
        try:
            await unless_set(self.forced_stop, dependencies.claims.prepare(pod))
        except ClaimFailure as error:
            text = f"Failed to prepare dynamic resources: {error}"
            self._record_failure("FailedPrepareDynamicResources", text)
            return
        try:
            await dependencies.runtime_classes.check(pod)
            spec = sandbox_spec(
                pod,
                attempt,
                logs=dependencies.files.logs(pod),
                cgroup=cgroup,
                dns=await self._dns(pod),
                first_id=await dependencies.user_ids.ensure(pod),
            )
            sandbox = await dependencies.runtime.run_sandbox(spec)
        except RuntimeFailure as error:
            text = f"Failed to create pod sandbox: {error}"
            self._record_failure("FailedCreatePodSandBox", text)
            return
        self.cache.put_sandbox(sandbox)
        self.failures.clear(POD_STEP)

    async def _dns(self, pod: Pod) -> DnsConfig:
        """Return the pod's DNS configuration; record an event if it is not the wanted one."""
        dependencies = self.dependencies
        cluster = await dependencies.cluster_dns()
        if cluster == "" and uses_cluster_dns(pod):
            policy = pod.spec.dnsPolicy or "ClusterFirst"
            text = (
                f'The cluster has no DNS server for the policy "{policy}". Falling back to'
                ' "Default" policy.'
            )
            self.recorder.record_pod(WARNING, "MissingClusterDNS", text)
        config, warnings = within_limits(dns_of(pod, dependencies.host_dns(), cluster or ""))
        for warning in warnings:
            self.recorder.record_pod(WARNING, "DNSConfigForming", warning)
        return config

    def _record_failure(self, reason: str, message: str) -> None:
        self.failures.record(POD_STEP, reason, message)
        self.recorder.record_pod(WARNING, reason, message)
