"""The parts of a node that talk to the API server, built on its foundation."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from kedge.api.core_v1.references import ObjectReference
from kedge.api.model import Object
from kedge.client.client import Client
from kedge.client.events import Recorder
from kedge.node.devices.access import DeviceAccessReview
from kedge.node.foundation import NodeFoundation
from kedge.node.host.eviction import LocalStorageEviction
from kedge.node.host.registration import NodeRegistration
from kedge.node.host.resolver_files import machine_dns, machine_hosts
from kedge.node.host.user_namespaces import UserNamespaces
from kedge.node.images.garbage_collector import ImageGarbageCollector
from kedge.node.network.network_place import MACHINE
from kedge.node.pod import security_modules
from kedge.node.pod.dependencies import PodDependencies
from kedge.node.pod.environment.environment import EnvironmentVariables
from kedge.node.pod.files import PodFiles, WritablePaths
from kedge.node.pod.pull_secrets import PullSecrets
from kedge.node.pod.referenced_objects import ConfigObjectWatches, ReferencedObjects
from kedge.node.pod.workers import PodWorkers
from kedge.node.resource_claims.claims import NodeClaims
from kedge.node.resource_claims.slice_removal import NodeSlices
from kedge.node.runtime.runtime_class import RuntimeClassChecker
from kedge.node.stats.disk_places import PodDiskPlaces
from kedge.node.storage.csi_registry import CsiRegistry
from kedge.node.storage.node_storage import NodeStorage
from kedge.node.volumes.volumes import PodVolumes
from kedge.supervisor.machine_capabilities import FULL

_OF_CONTAINERS: Final = frozenset({"Unhealthy", "ProbeWarning"})
"""Reasons of events whose messages programs of containers have written."""


class NodeTask(Protocol):
    """A part of the node that works until it is cancelled."""

    async def run(self) -> None:
        """Run for ever."""
        ...


class NodeComponents(NamedTuple):
    """The parts of a node, connected to each other."""

    registration: NodeRegistration
    recorder: Recorder
    sources: ReferencedObjects
    storage: NodeStorage
    pods: PodWorkers
    disk: PodDiskPlaces
    tasks: Sequence[NodeTask]
    """The parts that run from the beginning; storage and measuring wait for readiness."""


class NodeRecorder(Recorder):
    """Records events of a node, with advice if the kernel has refused an operation of kedge."""

    def __init__(self, client: Client, base: NodeFoundation) -> None:
        super().__init__(client, base.clock, "kubelet", base.config.name)
        self._runtime = base.runtime

    def record(
        self,
        obj: Object | ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
    ) -> None:
        if reason not in _OF_CONTAINERS and self._runtime.capabilities.level != FULL:
            # Few nodes need the import.
            from kedge.supervisor.plain.grants import explained

            message = explained(message)
        super().record(obj, type, reason, message, field_path=field_path)


def connect(base: NodeFoundation, client: Client, this: NodeRegistration) -> NodeComponents:
    """Build the parts of a node."""
    config, clock, devices = base.config, base.clock, base.devices
    recorder = NodeRecorder(client, base)
    sources = ReferencedObjects(client, clock)
    following = ConfigObjectWatches(client, clock)
    csi = CsiRegistry(base.machine_clock, devices.kubelet.in_pods)
    storage = NodeStorage(
        config,
        devices.kubelet,
        client,
        sources,
        this,
        recorder,
        clock,
        registered=csi,
        may_mount=base.may_mount,
    )
    volumes = pod_volumes(base, recorder, sources, following, storage, this)
    network = base.network
    environment = EnvironmentVariables(
        sources, this, volumes.place, network.service_address, network.resolver_variables
    )
    claims = NodeClaims(
        config.state / "devices",
        client,
        base.machine_clock,
        slices=NodeSlices(client, config.name, base.machine_clock),
        environment=environment,
        access=DeviceAccessReview(client, config.device_access),
        pod_changed=lambda uid: pods.wake(uid),
    )
    pods = PodWorkers(
        client,
        pod_dependencies(base, client, recorder, sources, volumes, environment, claims, this),
        config.name,
    )
    devices.connect(this.report_soon, pods.wake, pods.active, pods.exists, claims, csi)
    places = WritablePaths(config.pods, config.runtime)
    eviction = LocalStorageEviction(pods, volumes, places, clock)
    collection = ImageGarbageCollector(
        base.images, lambda *what: recorder.record(this.node, "Warning", *what), base.machine_clock
    )
    tasks = (this, recorder, sources, following, volumes, pods, devices, claims)
    return NodeComponents(
        this,
        recorder,
        sources,
        storage,
        pods,
        PodDiskPlaces(volumes, places),
        (*tasks, eviction, collection),
    )


def pod_volumes(
    base: NodeFoundation,
    recorder: Recorder,
    sources: ReferencedObjects,
    following: ConfigObjectWatches,
    storage: NodeStorage,
    this: NodeRegistration,
) -> PodVolumes:
    """Return the volumes of pods, opened."""
    config = base.config
    volumes = PodVolumes(
        config.pods,
        config.state / "memory",
        sources,
        following,
        this,
        recorder,
        base.clock,
        storage=storage.pods,
        kubelet=base.devices.kubelet,
        images=base.images,
        pull_secrets=PullSecrets(sources),
        may_mount=base.may_mount,
        mounter=base.memory_mounter,
    )
    volumes.open()
    return volumes


def pod_dependencies(
    base: NodeFoundation,
    client: Client,
    recorder: Recorder,
    sources: ReferencedObjects,
    volumes: PodVolumes,
    environment: EnvironmentVariables,
    claims: NodeClaims,
    this: NodeRegistration,
) -> PodDependencies:
    """Return the dependencies of the life of a pod."""
    config, bridge = base.config, base.network.bridge
    files = PodFiles(config.pods, config.logs)
    return PodDependencies(
        runtime=base.runtime,
        images=base.images,
        pull_secrets=PullSecrets(sources),
        volumes=volumes,
        environment=environment,
        devices=base.devices,
        claims=claims,
        device_access=DeviceAccessReview(client, config.device_access),
        cgroups=base.pod_cgroups(),
        user_ids=UserNamespaces(base.runtime, files),
        events=recorder,
        files=files,
        runtime_classes=RuntimeClassChecker(client),
        this_node=this,
        clock=base.clock,
        host_dns=machine_dns,
        cluster_dns=lambda: _dns_address(base, sources),
        host_hosts=machine_hosts,
        seccomp_profiles=config.state / "seccomp",
        security_modules=security_modules.enabled(),
        network=bridge.namespace if bridge is not None else MACHINE,
    )


async def _dns_address(base: NodeFoundation, sources: ReferencedObjects) -> str | None:
    """Return the address of the cluster's DNS server; None if pods have no network of their own
    to reach it."""
    if base.network.of_pods is None:
        return None
    from kedge.node.network.cluster_dns import service_address

    return base.network.service_address(await service_address(sources.services))
