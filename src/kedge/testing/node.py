"""A node agent without a machine: all its dependencies, in memory."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedge.api.core_v1.node_types import Node, NodeAddress, NodeStatus
from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.status import ResourceHealth, ResourceStatus
from kedge.api.core_v1.references import ObjectReference
from kedge.api.core_v1.secret import Secret
from kedge.api.model import Object, ObjectMeta
from kedge.machinery.clock import Clock
from kedge.machinery.quantity import Quantity
from kedge.node.devices.access import DeviceAccessReview
from kedge.node.devices.ledger import DeviceAmounts
from kedge.node.pod.dependencies import (
    ClaimFailure,
    ConfigFailure,
    ContainerEnvironment,
    DeviceFailure,
    DeviceGrant,
    ImageFailure,
    PodDependencies,
    VolumeFailure,
)
from kedge.node.pod.files import PodFiles
from kedge.node.pod.workers import PodWorkers
from kedge.node.runtime.runtime import (
    ContainerDevice,
    ContainerLimits,
    ContainerMount,
    DnsConfig,
    RuntimeFailure,
)
from kedge.node.runtime.runtime_class import RuntimeClassChecker
from kedge.settings.device_access import DeviceAccessRule
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document
from kedge.testing.runtime import FakeRuntime

NODE = "here"
HOST_IP = "192.168.0.1"
PODS = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True)
class FakeImage:
    """An image that is only a name."""

    id: str
    reference: str
    name: str
    size: int = 100
    user: str = ""
    stop_signal: str = ""


class FakeImages:
    """Has every image except those that a test removes."""

    def __init__(self) -> None:
        self.failures: dict[str, ImageFailure] = {}
        self.pulled: set[str] = set()
        """Names that have to be fetched."""
        self.gates: dict[str, asyncio.Event] = {}
        """Names whose pull takes until the event is set."""
        self.users: dict[str, str] = {}
        self.asked: list[str] = []

    async def resolve(
        self, name: str, policy: str, secrets: Sequence[Secret], progress: Callable[[], None]
    ) -> FakeImage:
        self.asked.append(name)
        if name in self.pulled or name in self.gates:
            progress()
        if name in self.gates:
            await self.gates[name].wait()
        if name in self.failures:
            raise self.failures[name]
        user = self.users.get(name, "")
        return FakeImage(f"id-{name}", f"{name}@sha256:0", f"docker.io/{name}", user=user)


class NoSecrets:
    """There are none."""

    async def of(self, pod: Pod) -> Sequence[Secret]:
        return ()


class FakeVolumes:
    """Records the pods that have volumes."""

    def __init__(self) -> None:
        self.mounted: set[str] = set()
        self.mounts = 0
        """How often it was asked to mount."""
        self.failures: list[VolumeFailure] = []
        self.image_failures: list[ImageFailure] = []
        """Of volumes that are images."""
        self.unmounting: asyncio.Event | None = None
        """Unmounts take until it is set."""

    async def mount(self, pod: Pod) -> None:
        self.mounts += 1
        if self.failures:
            raise self.failures.pop(0)
        self.mounted.add(pod.metadata.uid)

    async def mounts_of(
        self, pod: Pod, container: Container, env: Sequence[tuple[str, str]]
    ) -> list[ContainerMount]:
        if self.image_failures:
            raise self.image_failures.pop(0)
        return [
            ContainerMount(container_path=m.mountPath, host_path=f"/volumes/{m.name}")
            for m in container.volumeMounts
        ]

    def devices_of(self, pod: Pod, container: Container) -> list[ContainerDevice]:
        return []

    async def unmount(self, uid: str) -> None:
        if self.unmounting is not None:
            await self.unmounting.wait()
        self.mounted.discard(uid)


class FakeClaims:
    """Prepares claims without drivers, and records the pods."""

    def __init__(self) -> None:
        self.prepared: set[str] = set()
        self.failures: list[ClaimFailure] = []
        """The errors of the next calls."""
        self.devices: list[str] = []
        self.told: dict[str, list[ResourceStatus]] = {}

    async def prepare(self, pod: Pod) -> None:
        if pod.spec.resourceClaims:
            if self.failures:
                raise self.failures.pop(0)
            self.prepared.add(pod.metadata.uid)

    async def unprepare(self, uid: str) -> None:
        if uid in self.prepared:
            if self.failures:
                raise self.failures.pop(0)
            self.prepared.discard(uid)

    def cdi_devices(self, pod: Pod, container: Container) -> Sequence[str]:
        return self.devices

    def pod_uids(self) -> set[str]:
        return set(self.prepared)

    def health(self, pod: Pod) -> Mapping[str, Sequence[ResourceStatus]]:
        return self.told


class FakeDevices:
    """Has the scripted number of devices, and records the requests."""

    fresh = False

    def __init__(self) -> None:
        self.resources: set[str] = set()
        self.holders: set[str] = set()
        self.refusals: list[DeviceFailure] = []
        self.failures: list[ConfigFailure] = []
        """The errors of the next starts."""
        self.gifts = DeviceGrant()
        self.started: list[dict[str, str]] = []
        """The variables that PreStartContainer got, in order."""
        self.sick = False
        self.claimed: list[str] = []
        """The CDI devices of claims, of the latest start."""

    def amounts(self) -> dict[str, DeviceAmounts]:
        return {}

    def manages(self, resource: str) -> bool:
        return resource in self.resources

    async def allocate(self, pod: Pod) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        if self.resources:
            self.holders.add(pod.metadata.uid)

    def grant(self, pod: Pod, container: Container, cdi_devices: Sequence[str] = ()) -> DeviceGrant:
        self.claimed = list(cdi_devices)
        return self.gifts

    async def pre_start(self, pod: Pod, container: Container, env: Mapping[str, str]) -> None:
        if self.resources:
            self.started.append(dict(env))
        if self.failures:
            raise self.failures.pop(0)

    def release(self, uid: str) -> None:
        self.holders.discard(uid)

    def pod_uids(self) -> set[str]:
        return set(self.holders)

    def health(self, uid: str) -> dict[str, list[ResourceStatus]]:
        if uid not in self.holders:
            return {}
        health = ResourceHealth(resourceID="d-0", health="Unhealthy" if self.sick else "Healthy")
        return {"ctr": [ResourceStatus(name="example.com/d", resources=[health])]}


class FakeEnvironment:
    """Plain variables only."""

    def __init__(self) -> None:
        self.failures: list[ConfigFailure] = []

    async def environment(
        self, pod: Pod, container: Container, pod_ips: Sequence[str]
    ) -> ContainerEnvironment:
        if self.failures:
            raise self.failures.pop(0)
        return ContainerEnvironment(
            {var.name: var.value for var in container.env}, {"SERVICE": "somewhere"}
        )


class FakeCgroups:
    """Records the pods that have cgroups, and their settings."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.updates: list[str] = []

    def ensure(self, pod: Pod) -> str:
        self.there.add(pod.metadata.uid)
        return f"/kedge/{pod.metadata.uid}"

    def resources(self, pod: Pod, container: Container) -> ContainerLimits:
        cpu = container.resources.requests.get("cpu")
        return ContainerLimits(cpu_shares=None if cpu is None else cpu.milli())

    def update(self, pod: Pod) -> None:
        self.updates.append(pod.metadata.uid)

    def remove(self, uid: str) -> None:
        self.there.discard(uid)

    def pod_uids(self) -> set[str]:
        return set(self.there)


class RecordedEvents:
    """Keeps the recorded events."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        """(type, reason, message), in order."""
        self.paths: list[str] = []

    def record(
        self,
        obj: Object | ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
    ) -> None:
        self.told.append((type, reason, message))
        self.paths.append(field_path)

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.told]

    def messages(self, reason: str) -> list[str]:
        return [message for _, known, message in self.told if known == reason]


class FakeUserIds:
    """Allocates the next range to every pod that asks for one."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}
        self.failure = ""

    async def ensure(self, pod: Pod) -> int:
        if pod.spec.hostUsers is not False:
            return 0
        if self.failure:
            raise RuntimeFailure(self.failure)
        return self.given.setdefault(pod.metadata.uid, (len(self.given) + 1) << 16)

    async def release(self, uid: str) -> None:
        self.given.pop(uid, None)


class FakeNodeFacts:
    """A node of ten processors."""

    def __init__(self) -> None:
        allocatable = {"cpu": "10", "memory": "10Gi", "pods": "110"}
        amounts = {name: Quantity.parse(text) for name, text in allocatable.items()}
        self.exposed: Sequence[str] = ()
        self.node = Node(
            metadata=ObjectMeta(name=NODE, labels={"kubernetes.io/hostname": NODE}),
            status=NodeStatus(
                allocatable=amounts,
                addresses=[NodeAddress(type="InternalIP", address=HOST_IP)],
            ),
        )


class LocalNode:
    """The pod workers of a node agent, on an API server in the same process."""

    def __init__(self, server: LocalServer, directory: Path) -> None:
        self.server = server
        self.clock = server.clock
        self.runtime = FakeRuntime(server.clock)
        self.images = FakeImages()
        self.volumes = FakeVolumes()
        self.environment = FakeEnvironment()
        self.devices = FakeDevices()
        self.claims = FakeClaims()
        self.device_access: Sequence[DeviceAccessRule] = ()
        self.cgroups = FakeCgroups()
        self.user_ids = FakeUserIds()
        self.events = RecordedEvents()
        self.here = FakeNodeFacts()
        self.files = PodFiles(directory / "pods", directory / "logs")
        self.pods: PodWorkers
        self._task: asyncio.Task[None] | None = None
        self._directory = directory
        self.dns_address: str | None = "10.96.0.10"

    async def _cluster_dns(self) -> str | None:
        return self.dns_address

    def dependencies(self) -> PodDependencies:
        clock: Clock = self.clock
        return PodDependencies(
            runtime=self.runtime,
            images=self.images,
            pull_secrets=NoSecrets(),
            volumes=self.volumes,
            environment=self.environment,
            devices=self.devices,
            claims=self.claims,
            device_access=DeviceAccessReview(self.server.client, self.device_access),
            cgroups=self.cgroups,
            user_ids=self.user_ids,
            events=self.events,
            files=self.files,
            runtime_classes=RuntimeClassChecker(self.server.client),
            this_node=self.here,
            clock=clock,
            host_dns=DnsConfig,
            cluster_dns=self._cluster_dns,
            host_hosts=lambda: "127.0.0.1 localhost\n",
            seccomp_profiles=self._directory,
        )

    # The agent.

    async def start(self) -> None:
        """Begin, or begin again after a kill."""
        self.pods = PodWorkers(self.server.client, self.dependencies(), NODE)
        # This node owns the task: `kill` ends it.
        self._task = asyncio.get_running_loop().create_task(self.pods.run())
        await self.settle()

    async def kill(self) -> None:
        """The agent dies where it stands; containers run on."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(BaseException):
                await self._task
            self._task = None
            self.runtime.disconnect()

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        await self.kill()
        self.runtime.cancel_timers()

    async def settle(self, turns: int = 8) -> None:
        """Let all tasks act without advancing the clock noticeably."""
        for _ in range(turns):
            await self.clock.advance(0.005)

    async def later(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.advance(seconds)
        await self.settle()

    # The pods.

    async def create(self, name: str = "pod", **parts: Any) -> None:
        """A pod that is bound here."""
        metadata = {"name": name} | (parts.pop("metadata", None) or {})
        spec = {"nodeName": NODE} | (parts.pop("spec", None) or {})
        document = pod_document(metadata=metadata, spec=spec, **parts)
        await self.server.post(PODS, document)
        await self.settle()

    async def delete(self, name: str = "pod", grace: int | None = None) -> None:
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        await self.server.delete(f"{PODS}/{name}", body)
        await self.settle()

    async def get(self, name: str = "pod") -> dict[str, Any] | None:
        """The pod as the API has it; None if it is gone."""
        answer = await self.server.call("GET", f"{PODS}/{name}")
        if answer.status == 404:
            return None
        document: dict[str, Any] = answer.document
        return document

    async def status(self, name: str = "pod") -> dict[str, Any]:
        found = await self.get(name)
        assert found is not None, f"pod {name} is gone"
        status: dict[str, Any] = found["status"]
        return status

    async def container(self, name: str = "ctr", pod: str = "pod") -> dict[str, Any]:
        """The status of one container."""
        status = await self.status(pod)
        lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for kind in lists:
            for found in status.get(kind, []):
                if found["name"] == name:
                    known: dict[str, Any] = found
                    return known
        raise AssertionError(f"no status of container {name}")
