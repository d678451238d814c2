"""Registration of the node: its Node object, kept up to date, and its Lease, renewed."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from msgspec.structs import replace

from kedge import KUBERNETES, __version__
from kedge.api.builtin.policy_limits import ENFORCEMENT_ANNOTATION
from kedge.api.coordination_v1.lease import RESOURCE as LEASES
from kedge.api.coordination_v1.lease import Lease, LeaseSpec
from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import (
    DECLARED_FEATURES,
    ContainerImage,
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeCondition,
    NodeDaemonEndpoints,
    NodeFeatures,
    NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures,
    NodeSpec,
    NodeStatus,
    NodeSwapStatus,
    NodeSystemInfo,
)
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.client.client import Client
from kedge.client.informer import Cache, Informer
from kedge.client.view import objects
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_micro_time, format_time
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Format, Quantity
from kedge.node.config import NodeConfig
from kedge.node.devices.ledger import DeviceAmounts
from kedge.node.host import machine_annotations
from kedge.node.host.machine import MachineInfo
from kedge.node.network.peers import MACHINE_ADDRESS, NODE_NETWORK
from kedge.node.runtime.runtime import NO_FEATURES, RuntimeFeatures
from kedge.supervisor.machine_capabilities import MachineCapabilities

log = logging.getLogger(__name__)

SERVICE_PROXY: Final = "kedge.dev/service-proxy"
"""The annotation that says how the node carries Services."""
_OWN_ANNOTATIONS: Final = (
    SERVICE_PROXY,
    ENFORCEMENT_ANNOTATION,
    MACHINE_ADDRESS,
    NODE_NETWORK,
    *machine_annotations.ANNOTATIONS,
)
"""Annotations that the agent removes if they are no longer true."""
LEASES_NAMESPACE: Final = "kube-node-lease"
RENEW_SECONDS: Final = 10.0
LEASE_SECONDS: Final = 40
REPORT_SECONDS: Final = 300.0
"""Seconds between two reports of an unchanged status in a cluster of up to 1,000 nodes."""
REPORT_SECONDS_PER_NODE: Final = 0.3
MAX_IMAGES: Final = 50

_MEMORY: Final = (
    "MemoryPressure",
    "False",
    "KubeletHasSufficientMemory",
    "has sufficient memory available",
)
_DISK: Final = ("DiskPressure", "False", "KubeletHasNoDiskPressure", "has no disk pressure")
_FULL_DISK: Final = ("DiskPressure", "True", "KubeletHasDiskPressure", "has disk pressure")
_PIDS: Final = ("PIDPressure", "False", "KubeletHasSufficientPID", "has sufficient PID available")
_READY: Final = ("Ready", "True", "KubeletReady", "is posting ready status")


def node_object(
    config: NodeConfig,
    machine: MachineInfo,
    capabilities: MachineCapabilities,
    *,
    port: int,
    address: str = "",
    pod_cidr: str = "",
    user_namespaces: bool = False,
    annotations: Mapping[str, str] | None = None,
    runtime: str = f"kedge://{__version__}",
    features: RuntimeFeatures = NO_FEATURES,
) -> Node:
    """Return the Node object of this agent, without its conditions. Its `address` is the one of
    the configuration, unless another is given. `runtime` is the name and version of the one that
    runs its containers, with its features."""
    labels = {
        "beta.kubernetes.io/arch": machine.architecture,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/hostname": config.name,
        "kubernetes.io/os": "linux",
        **machine_annotations.capability_labels(capabilities),
        **config.labels,
    }
    capacity = _capacity(config, machine)
    status = NodeStatus(
        addresses=[
            NodeAddress(type="InternalIP", address=address or config.address),
            NodeAddress(type="Hostname", address=config.name),
        ],
        capacity=capacity,
        allocatable=allocatable(capacity, config.reserved),
        daemonEndpoints=NodeDaemonEndpoints(kubeletEndpoint=DaemonEndpoint(Port=port)),
        nodeInfo=_info(machine, runtime),
        features=NodeFeatures(supplementalGroupsPolicy=features.strict_groups),
        declaredFeatures=[*DECLARED_FEATURES],
        runtimeHandlers=[
            NodeRuntimeHandler(
                features=NodeRuntimeHandlerFeatures(
                    recursiveReadOnlyMounts=features.recursive_read_only,
                    userNamespaces=user_namespaces,
                )
            )
        ],
    )
    spec = NodeSpec(podCIDR=pod_cidr, podCIDRs=[pod_cidr] if pod_cidr else [])
    meta = ObjectMeta(name=config.name, labels=labels, annotations=dict(annotations or {}))
    return Node(metadata=meta, spec=spec, status=status)


def _capacity(config: NodeConfig, machine: MachineInfo) -> dict[str, Quantity]:
    return {
        "cpu": Quantity.from_value(machine.cpus),
        "ephemeral-storage": _size(machine.disk),
        **{f"hugepages-{size}": _size(number) for size, number in machine.hugepages.items()},
        "memory": _size(machine.memory),
        "pods": Quantity.from_value(config.max_pods),
    }


def allocatable(
    capacity: Mapping[str, Quantity], reserved: Mapping[str, Quantity]
) -> dict[str, Quantity]:
    """Return the capacity minus the reserved amounts, at least zero."""
    zero = Quantity.from_value(0)
    return {
        name: max(amount - reserved[name], zero) if name in reserved else amount
        for name, amount in capacity.items()
    }


def _size(number: int) -> Quantity:
    # In whole Ki, as the kubelet reports it.
    return Quantity.from_value(number // 1024 * 1024, Format.BINARY_SI)


def _info(machine: MachineInfo, runtime: str) -> NodeSystemInfo:
    return NodeSystemInfo(
        machineID=machine.machine_id,
        systemUUID=machine.system_uuid,
        bootID=machine.boot_id,
        kernelVersion=machine.kernel,
        osImage=machine.os_image,
        containerRuntimeVersion=runtime,
        kubeletVersion=f"v{KUBERNETES}+kedge",
        operatingSystem="linux",
        architecture=machine.architecture,
        swap=NodeSwapStatus(capacity=machine.swap) if machine.swap else None,
    )


def node_conditions(now: datetime, *, disk_pressure: bool) -> list[NodeCondition]:
    """Return the conditions of a node whose agent works."""
    disk = _FULL_DISK if disk_pressure else _DISK
    at = format_time(now)
    return [
        NodeCondition(
            type=kind,
            status=status,
            reason=reason,
            message=f"kubelet {message}",
            lastHeartbeatTime=at,
            lastTransitionTime=at,
        )
        for kind, status, reason, message in (_MEMORY, disk, _PIDS, _READY)
    ]


def updated_node(found: Node, ours: Node, *, anew: bool = False) -> Node:
    """Return the existing node with the status of this agent. Extended resources of others stay,
    but their amount is zero if the node starts `anew`, as in the kubelet."""
    before = {condition.type: condition for condition in found.status.conditions}
    conditions = [_since(condition, before) for condition in ours.status.conditions]
    kept = [c for c in found.status.conditions if c.type not in {c.type for c in conditions}]
    extra = {
        name: Quantity.from_value(0) if anew else amount
        for name, amount in found.status.capacity.items()
        if name not in ours.status.capacity and "/" in name
    }
    kept_free = {} if anew else found.status.allocatable
    return replace(
        found,
        metadata=replace(
            found.metadata,
            labels={**found.metadata.labels, **ours.metadata.labels},
            annotations=_annotations(found.metadata.annotations, ours.metadata.annotations),
        ),
        spec=replace(
            found.spec,
            podCIDR=found.spec.podCIDR or ours.spec.podCIDR,
            podCIDRs=found.spec.podCIDRs or ours.spec.podCIDRs,
        ),
        status=replace(
            ours.status,
            capacity={**extra, **ours.status.capacity},
            allocatable={
                **{name: kept_free.get(name, extra[name]) for name in extra},
                **ours.status.allocatable,
            },
            conditions=[*kept, *conditions],
            volumesAttached=found.status.volumesAttached,
            volumesInUse=found.status.volumesInUse,
        ),
    )


def _annotations(found: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Return ours, and those of others."""
    others = {key: value for key, value in found.items() if key not in _OWN_ANNOTATIONS}
    return {**others, **ours}


def _since(condition: NodeCondition, before: Mapping[str, NodeCondition]) -> NodeCondition:
    """Return the condition with the time of its latest change."""
    known = before.get(condition.type)
    if known is None or known.status != condition.status:
        return condition
    return replace(condition, lastTransitionTime=known.lastTransitionTime)


def needs_report(found: Node, wanted: Node) -> bool:
    """Return whether anything but the heartbeat times has changed."""
    if found.metadata.annotations != wanted.metadata.annotations:
        return True
    return _timeless(found.status) != _timeless(wanted.status)


def _timeless(status: NodeStatus) -> NodeStatus:
    conditions = [replace(c, lastHeartbeatTime="") for c in status.conditions]
    return replace(status, conditions=conditions)


Images = Callable[[], Sequence[ContainerImage]]


class ExtendedResources(Protocol):
    """Extended resources of the node (kedge.node.devices)."""

    fresh: bool
    """Whether the node has no checkpoint of its devices."""

    def amounts(self) -> Mapping[str, DeviceAmounts]: ...


def report_seconds(nodes: int) -> float:
    """Return the seconds between two reports of an unchanged status.

    Each node follows all others, so reports at a fixed interval would cost the server the square of
    the number of nodes. Nothing depends on them: the Lease tells that a node lives."""
    return max(REPORT_SECONDS, nodes * REPORT_SECONDS_PER_NODE)


class NodeRegistration:
    """Registers the node and renews its lease. Fulfils dependencies.ThisNode."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        node: Node,
        images: Images,
        extended: ExtendedResources,
        exposed: Sequence[str] = (),
        claimed: Node | None = None,
        *,
        has_disk_pressure: Callable[[], bool],
        cluster_size: Callable[[], int],
    ) -> None:
        """`claimed` is the object that the node has already, if any. `cluster_size` returns
        how many nodes there are, as far as this one knows."""
        self._cluster_size = cluster_size
        self._has_disk_pressure = has_disk_pressure
        self._claimed = claimed
        self.exposed = exposed
        self.registered = asyncio.Event()
        """Set once the node is registered and its lease is renewed."""
        self._client = client
        self._clock = clock
        self._described = node
        self._images = images
        self._extended = extended
        self._anew = extended.fresh
        self._known: Cache[Node] = Cache()
        self._last = node
        self._report_event = asyncio.Event()
        name = node.metadata.name
        fields = f"metadata.name={name}"
        self._informer = Informer(client, objects(RESOURCE), self._known, clock, fields=fields)
        self._known.listen(lambda _: self._seen())

    @property
    def node(self) -> Node:
        """The node's object as last seen."""
        return self._last

    def report_soon(self) -> None:
        """Report now, because something in the status may have changed."""
        self._report_event.set()

    def annotate(self, name: str, value: str) -> None:
        """Set an annotation of the node, now and whenever it is registered again."""
        meta = self._described.metadata
        annotations = {**meta.annotations, name: value}
        self._described = replace(self._described, metadata=replace(meta, annotations=annotations))
        self.report_soon()

    async def run(self) -> None:
        """Register the node and keep it up to date until cancelled."""
        await self._register_with_retries()
        self.registered.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            tasks.create_task(self._renew_lease())
            tasks.create_task(self._report_changes())

    def _seen(self) -> None:
        found = self._known.get(self._described.metadata.name)
        if found is None:
            # The node was deleted: a running agent registers it again.
            self._report_event.set()
        else:
            self._last = found

    async def _register_with_retries(self) -> None:
        """Register the node; retry until that succeeds."""
        logged = ""
        while True:
            try:
                await self._register()
                return
            except (StatusError, OSError) as error:
                if str(error) != logged:
                    log.warning("cannot register node=%s error=%s", self._name, error)
                logged = str(error)
                await self._clock.sleep(1.0)

    @property
    def _name(self) -> str:
        return self._described.metadata.name

    async def _register(self) -> None:
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            await self._take_over(claimed)
            self._anew = False
            await self.renew()
            return
        wanted = updated_node(self._current(), self._current())
        try:
            self._last = await self._client.create(RESOURCE, wanted)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._take_over(await self._client.get(RESOURCE, self._name))
        self._anew = False
        await self.renew()

    async def _take_over(self, found: Node) -> None:
        """Update the object of a previous agent with the status of this one."""
        wanted = updated_node(found, self._current(), anew=self._anew)
        if (wanted.metadata, wanted.spec) != (found.metadata, found.spec):
            found = await self._client.update(RESOURCE, wanted)
            wanted = updated_node(found, self._current(), anew=self._anew)
        self._last = await self._client.update(RESOURCE, wanted, subresource="status")

    def _current(self) -> Node:
        status, amounts = self._described.status, self._extended.amounts()
        capacity = {name: Quantity.from_value(each.capacity) for name, each in amounts.items()}
        left = {name: Quantity.from_value(each.allocatable) for name, each in amounts.items()}
        status = replace(
            status,
            conditions=node_conditions(self._clock.now(), disk_pressure=self._has_disk_pressure()),
            images=list(self._images())[:MAX_IMAGES],
            capacity={**status.capacity, **capacity},
            allocatable={**status.allocatable, **left},
        )
        return replace(self._described, status=status)

    async def _renew_lease(self) -> None:
        while True:
            await self._clock.sleep(RENEW_SECONDS)
            try:
                await self.renew()
            except (StatusError, OSError) as error:
                log.warning("lease not renewed node=%s error=%s", self._name, error)

    async def renew(self) -> None:
        """Renew the lease of the node now."""
        at = format_micro_time(self._clock.now())
        try:
            patch = {"spec": {"renewTime": at, "holderIdentity": self._name}}
            await self._client.patch(LEASES, self._name, patch, LEASES_NAMESPACE)
        except StatusError as error:
            if error.code != 404:
                raise
            await self._client.create(LEASES, self._lease(at))

    def _lease(self, at: str) -> Lease:
        node = self._last
        owner = OwnerReference(apiVersion="v1", kind="Node", name=self._name, uid=node.metadata.uid)
        meta = ObjectMeta(name=self._name, namespace=LEASES_NAMESPACE, ownerReferences=[owner])
        spec = LeaseSpec(
            holderIdentity=self._name, leaseDurationSeconds=LEASE_SECONDS, renewTime=at
        )
        return Lease(metadata=meta, spec=spec)

    async def _report_changes(self) -> None:
        reported = self._clock.monotonic()
        while True:
            await self._wait_for_change(RENEW_SECONDS)
            pause = report_seconds(self._cluster_size())
            late = self._clock.monotonic() >= reported + pause
            try:
                if await self._report(even_if_unchanged=late):
                    reported = self._clock.monotonic()
            except (StatusError, OSError) as error:
                log.warning("status not reported node=%s error=%s", self._name, error)

    async def _wait_for_change(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            alarm = group.create_task(self._alarm(seconds))
            await self._report_event.wait()
            alarm.cancel()
        self._report_event.clear()

    async def _alarm(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._report_event.set()

    async def _report(self, *, even_if_unchanged: bool) -> bool:
        found = self._known.get(self._name)
        if found is None:
            await self._register()
            return True
        wanted = updated_node(found, self._current())
        if not even_if_unchanged and not needs_report(found, wanted):
            return False
        await self._take_over(await self._client.get(RESOURCE, self._name))
        return True
