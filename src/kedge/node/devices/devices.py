"""The devices of a node: connects plugins, ledger and checkpoint with the rest of the agent."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.status import ResourceHealth, ResourceStatus
from kedge.api.resource_v1.extended_resources import claimed_resources
from kedge.deviceplugin import wire
from kedge.deviceplugin.messages import HEALTHY, PLUGIN_TYPE, SOCKET, UNHEALTHY
from kedge.deviceplugin.pod_resources import DynamicResource
from kedge.dra.messages import DRIVER_TYPE
from kedge.machinery.clock import Clock
from kedge.node.devices import artifacts, cdi, paths
from kedge.node.devices.checkpoint import LedgerCheckpoint
from kedge.node.devices.grpc_socket import GrpcSocket
from kedge.node.devices.ledger import (
    AllocationError,
    DeviceAmounts,
    DeviceChoice,
    DeviceOwner,
    in_order,
)
from kedge.node.devices.paths import DirectoryClaim
from kedge.node.devices.plugin import RELEASE_SECONDS, PluginClient
from kedge.node.devices.plugin_channel import PluginError
from kedge.node.devices.pod_resources import PodResourcesService
from kedge.node.devices.registry import PluginRegistry
from kedge.node.devices.release_notifier import DeviceReleaseNotifier
from kedge.node.devices.simulated import SimulatedPlugin
from kedge.node.devices.watcher import PluginHandler, PluginWatcher
from kedge.node.host.kubelet_directory import KubeletDirectory
from kedge.node.pod.dependencies import ConfigFailure, DeviceFailure, DeviceGrant
from kedge.node.pod.timeouts import with_timeout
from kedge.node.resource_claims.claims import NodeClaims

log = logging.getLogger(__name__)

RETURN_SECONDS: Final = 60.0
"""Seconds that pods of a previous agent wait for plugins that have not registered again."""
CSI_TYPE: Final = "CSIPlugin"
"""The type of volume drivers at their registration sockets."""
_PRE_START: Final = "device plugin PreStartContainer rpc failed with err"

Reusable = dict[str, set[str]]
"""By resource: devices of earlier init containers of a pod, which later containers may reuse."""


class NodeDevices:
    """The devices of one node. Fulfils dependencies.DeviceAllocator. The owner must `run` it."""

    def __init__(
        self,
        directory: Path,
        own: Path,
        clock: Clock,
        *,
        simulated: Mapping[str, int] = {},
        cdi_directories: Sequence[Path] = cdi.DIRECTORIES,
    ) -> None:
        """`directory` is where plugins register; `own` is a directory of the agent alone. Drivers
        without access to `cdi_directories` can write their specs beside the sockets."""
        self.places = paths.places(directory)
        self.kubelet = KubeletDirectory(self.places.drivers.parent, own, directory)
        self._own = own
        self._clock = clock
        self._cdi = (*cdi_directories, self.places.cdi)
        self._checkpoint = LedgerCheckpoint(own)
        self.fresh = not self._checkpoint.exists()
        """Whether there is no checkpoint."""
        self._ledger = self._checkpoint.read()
        self._registry = PluginRegistry(directory, self._ledger, clock, self._changed)
        self._registry.returned = self._returned
        self._releases = DeviceReleaseNotifier(
            self._ledger, self._registry, clock, self._given_back
        )
        self._simulated = [
            SimulatedPlugin(name, number, clock) for name, number in simulated.items()
        ]
        self._back: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tell_node: Callable[[], None] = lambda: None
        self._tell_pod: Callable[[str], None] = lambda uid: None
        self._pods: Callable[[], Iterable[Pod]] = list
        self._exists: Callable[[str], bool] = lambda uid: True
        self._claims: NodeClaims | None = None
        self._handlers: dict[str, PluginHandler] = {PLUGIN_TYPE: self._registry}
        self.watcher = PluginWatcher(
            self.places.watched, self._handlers, clock, self.kubelet.on_machine
        )
        self._freed = asyncio.Event()
        """Set, and replaced, whenever devices have become free."""
        self._begun = clock.monotonic()

    def connect(
        self,
        node_changed: Callable[[], None],
        pod_changed: Callable[[str], None],
        pods: Callable[[], Iterable[Pod]],
        exists: Callable[[str], bool],
        claims: NodeClaims | None = None,
        volume_drivers: PluginHandler | None = None,
    ) -> None:
        """Set the callbacks for changes of the node's resources and of the health of a pod's
        devices, the source of active pods, the test whether the API has a pod of some uid, and the
        node's resource claims and volumes, whose drivers register beside plugins."""
        self._tell_node, self._tell_pod, self._pods = node_changed, pod_changed, pods
        self._exists = exists
        self._claims = claims
        if claims is not None:
            self._handlers[DRIVER_TYPE] = claims.drivers
        if volume_drivers is not None:
            self._handlers[CSI_TYPE] = volume_drivers

    def _dynamic_resources(self, pod: Pod, container: Container) -> Sequence[DynamicResource]:
        return self._claims.dynamic_resources(pod, container) if self._claims else ()

    # The loop.

    async def run(self) -> None:
        """Run until cancelled. Raises OSError if the sockets cannot be created."""
        for each in self.places:
            each.mkdir(mode=0o750, parents=True, exist_ok=True)
        paths.clear_sockets(self.places.plugins)
        door = GrpcSocket(
            self.places.plugins / SOCKET, self._own / "registration.sock", self._registry.handlers
        )
        service = PodResourcesService(
            self._ledger, lambda: self._pods(), self._dynamic_resources, self._clock
        )
        told = GrpcSocket(
            self.places.resources / SOCKET, self._own / "resources.sock", service.handlers
        )
        async with asyncio.TaskGroup() as tasks:
            for work in (self._registry, door, told, self.watcher, self._releases):
                tasks.create_task(work.run())
            for plugin in self._simulated:
                tasks.create_task(plugin.serve(self.places.plugins))

    async def simulated(self) -> None:
        """Return when the simulated devices are registered."""
        for each in self._simulated:
            await self._back[each.resource].wait()

    def _changed(self, pods: set[str]) -> None:
        self._record()
        self._tell_node()
        for uid in pods:
            self._tell_pod(uid)

    def _returned(self, resource: str) -> None:
        self._back[resource].set()
        self._releases.wake()

    def _given_back(self) -> None:
        self._record()
        self._tell_node()
        self._announce_free()

    def _announce_free(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()

    def _record(self) -> None:
        try:
            self._checkpoint.write(self._ledger)
        except OSError as error:
            log.error("cannot write the device checkpoint error=%r", str(error))

    # The status of the node.

    def amounts(self) -> Mapping[str, DeviceAmounts]:
        """Return the amounts of each resource that a plugin has ever registered."""
        return self._ledger.amounts()

    def manages(self, resource: str) -> bool:
        return resource in self._ledger.offers

    def pod_uids(self) -> Iterable[str]:
        return self._ledger.pods()

    def health(self, uid: str) -> Mapping[str, Sequence[ResourceStatus]]:
        found: dict[str, dict[str, list[ResourceHealth]]] = {}
        for container, resource, device, healthy in self._ledger.health(uid):
            health = HEALTHY if healthy else UNHEALTHY
            told = found.setdefault(container, {}).setdefault(resource, [])
            told.append(ResourceHealth(resourceID=device, health=health))
        return {
            container: [ResourceStatus(name=name, resources=told) for name, told in each.items()]
            for container, each in found.items()
        }

    # Allocation.

    async def allocate(self, pod: Pod) -> None:
        reusable: Reusable = {}
        try:
            for container in pod.spec.initContainers:
                got = await self._allocate(pod, container, reusable)
                for resource, ids in got.items():
                    kept = reusable.setdefault(resource, set())
                    if is_sidecar(container):
                        kept.difference_update(ids)
                    else:
                        kept.update(ids)
            for container in pod.spec.containers:
                for resource, ids in (await self._allocate(pod, container, reusable)).items():
                    reusable.get(resource, set()).difference_update(ids)
        except (AllocationError, PluginError) as error:
            self.release(pod.metadata.uid)
            text = f"Allocate failed due to {error}, which is unexpected"
            raise DeviceFailure("UnexpectedAdmissionError", text) from error

    async def _allocate(
        self, pod: Pod, container: Container, reusable: Reusable
    ) -> dict[str, tuple[str, ...]]:
        owner = _owner(pod, container)
        got: dict[str, tuple[str, ...]] = {}
        for resource, number in self._wanted(pod, container):
            held = self._ledger.holdings.get((owner.pod, owner.container, resource))
            if held is not None:
                await self._await_return(resource)
            if self._ledger.missing(owner, resource, number):
                again = reusable.get(resource, set())
                got[resource] = await self._obtain(owner, resource, number, again)
            elif held is not None:
                got[resource] = held.ids
        return got

    def _wanted(self, pod: Pod, container: Container) -> list[tuple[str, int]]:
        """Return the resources of a container that consist of devices, in the order of their names.
        Other extended resources come by a claim, or are managed outside of the node."""
        limits = container.resources.limits
        claimed = set(claimed_resources(pod))
        return [
            (name, limits[name].value())
            for name in sorted(limits)
            if self.manages(name) and limits[name].value() and (container.name, name) not in claimed
        ]

    async def _await_return(self, resource: str) -> None:
        """Wait for plugins: after a reboot pods may start before the plugins."""
        left = self._begun + RETURN_SECONDS - self._clock.monotonic()
        if self._registry.plugin(resource) is None and left > 0:
            with contextlib.suppress(TimeoutError):
                await with_timeout(self._clock, left, self._back[resource].wait())

    async def _obtain(
        self, owner: DeviceOwner, resource: str, number: int, reusable: set[str]
    ) -> tuple[str, ...]:
        plugin = self._registry.plugin(resource)
        if plugin is None:
            raise AllocationError(f"unknown Device Plugin {resource}")
        async with self._choosing[resource]:
            choice = await self._choice(resource, number, reusable)
            preferred = await self._preferred(plugin, choice)
            ids = choice.decided(preferred)
            self._ledger.reserve(resource, ids)
        try:
            answer = await plugin.allocate(in_order(ids), owner)
            self._refuse_unsupported(each.name for each in answer.cdi_devices)
            self._ledger.hold(owner, resource, ids, wire.encode(answer))
        finally:
            self._ledger.cancel_reservation(resource, ids)
        self._record()
        return ids

    def _refuse_unsupported(self, cdi_devices: Iterable[str]) -> None:
        """Refuse edits that the container could never get, while the pod can still go elsewhere. A
        device without a spec is not refused: its driver may write the spec before the start."""
        names = list(cdi_devices)
        if found := cdi.unsupported(names, self._cdi):
            raise AllocationError(
                f"CDI devices {', '.join(names)}: this node does not support {', '.join(found)}"
            )

    async def _preferred(self, plugin: PluginClient, choice: DeviceChoice) -> Sequence[str]:
        if choice.open and plugin.options.get_preferred_allocation_available:
            return await plugin.prefer(choice)
        return ()

    async def _choice(self, resource: str, number: int, reusable: set[str]) -> DeviceChoice:
        """Return the devices to choose from; wait for devices of deleted pods that still run, and
        then a moment for devices whose release is being announced to their plugin."""
        until = self._clock.monotonic() + RELEASE_SECONDS
        while True:
            try:
                return self._ledger.choice(resource, number, reusable)
            except AllocationError:
                if self._registry.plugin(resource) is None:
                    raise
                if self._has_removed_holder(resource):
                    await self._freed.wait()
                    until = self._clock.monotonic() + RELEASE_SECONDS
                    continue
                left = until - self._clock.monotonic()
                parting = any(each.resource == resource for each in self._ledger.releases)
                if not parting or left <= 0:
                    raise
                with contextlib.suppress(TimeoutError):
                    await with_timeout(self._clock, left, self._freed.wait())

    def _has_removed_holder(self, resource: str) -> bool:
        """Return whether a pod has devices that the API does not have any more: its worker, or the
        search for orphaned resources, will release them."""
        holders = {h.owner.pod for h in self._ledger.holdings.values() if h.resource == resource}
        return not all(map(self._exists, holders))

    def release(self, uid: str) -> None:
        if self._ledger.release(uid):
            self._record()
            if self._ledger.releases:
                self._tell_node()
            self._releases.wake()
            self._announce_free()

    # Start.

    def grant(self, pod: Pod, container: Container, cdi_devices: Sequence[str] = ()) -> DeviceGrant:
        holdings = self._ledger.of_container(pod.metadata.uid, container.name)
        if not holdings and not cdi_devices:
            return DeviceGrant()
        return artifacts.device_grant(holdings, self._cdi, self._own / "nodes", cdi_devices)

    async def pre_start(self, pod: Pod, container: Container, env: Mapping[str, str]) -> None:
        owner = _owner(pod, container)
        for resource, _ in self._wanted(pod, container):
            if not self._ledger.offers[resource].options.pre_start_required:
                continue
            held = self._ledger.holdings.get((owner.pod, owner.container, resource))
            if held is None:
                raise ConfigFailure(
                    f"no devices found allocated in local cache for pod {owner.pod}, "
                    f"container {owner.container}, resource {resource}"
                )
            plugin = self._registry.plugin(resource)
            if plugin is None:
                raise ConfigFailure(f"{_PRE_START}: endpoint of {resource} has been stopped")
            try:
                await plugin.pre_start(sorted(held.ids), _sendable(env, owner), owner)
            except PluginError as error:
                raise ConfigFailure(f"{_PRE_START}: {error}") from error


def _owner(pod: Pod, container: Container) -> DeviceOwner:
    meta = pod.metadata
    return DeviceOwner(meta.uid, container.name, meta.name, meta.namespace)


def _sendable(env: Mapping[str, str], owner: DeviceOwner) -> dict[str, str]:
    """Return the variables without those that a protobuf string cannot carry."""
    sent = {}
    for name, value in env.items():
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError:
            text = "variable is not UTF-8, not passed to plugin name=%r pod=%s/%s container=%s"
            log.warning(text, name, owner.namespace, owner.pod_name, owner.container)
        else:
            sent[name] = value
    return sent


def find_directory(wanted: Path | None, own: Path) -> tuple[Path, DirectoryClaim | None]:
    """Return the directory where plugins register: the configured one, or the node's own if another
    agent uses that."""
    for directory in (wanted, own):
        if directory is None:
            continue
        try:
            claim = DirectoryClaim.stake(directory)
        except OSError as error:
            log.warning("cannot serve device plugins directory=%s error=%r", directory, str(error))
            continue
        if claim is not None:
            return directory, claim
        log.warning("another agent serves device plugins directory=%s", directory)
    return own, None
