"""The devices of a node: plugins, the ledger and its file, as the rest of the agent sees them."""

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
from kedge.deviceplugin import wire
from kedge.deviceplugin.messages import HEALTHY, SOCKET, UNHEALTHY
from kedge.machinery.clock import Clock
from kedge.node.devices import artifacts, cdi, paths
from kedge.node.devices.checkpoint import Checkpoint
from kedge.node.devices.door import Door
from kedge.node.devices.farewells import Farewells
from kedge.node.devices.ledger import AllocationError, Amounts, Choice, Owner, in_order
from kedge.node.devices.paths import Claim
from kedge.node.devices.plugin import RELEASE_SECONDS, Plugin, PluginError
from kedge.node.devices.pod_resources import PodResourcesService
from kedge.node.devices.registry import Registry
from kedge.node.devices.simulated import Simulated
from kedge.node.devices.watcher import Watcher
from kedge.node.parts import ConfigFailure, DeviceFailure, Given
from kedge.node.waits import within

log = logging.getLogger(__name__)

RETURN_SECONDS: Final = 60.0
"""How long pods that were here before wait for plugins that are not back yet."""
_PRE_START: Final = "device plugin PreStartContainer rpc failed with err"

Reusable = dict[str, set[str]]
"""By resource: devices of earlier init containers of a pod, which later containers may have."""


class NodeDevices:
    """Fulfils parts.Devices. Somebody must `run` it."""

    def __init__(
        self,
        directory: Path,
        own: Path,
        clock: Clock,
        *,
        simulated: Mapping[str, int] = {},
        cdi_directories: Sequence[Path] = cdi.DIRECTORIES,
    ) -> None:
        """`directory` is where plugins register; `own` is where nobody but the agent looks."""
        self.places = paths.places(directory)
        self._own = own
        self._clock = clock
        self._cdi = cdi_directories
        self._checkpoint = Checkpoint(own)
        self.fresh = not self._checkpoint.exists()
        """Whether nothing is known of an earlier life."""
        self._ledger = self._checkpoint.read()
        self._registry = Registry(directory, self._ledger, clock, self._changed)
        self._registry.returned = self._returned
        self._farewells = Farewells(self._ledger, self._registry, clock, self._record)
        self._simulated = [Simulated(name, number, clock) for name, number in simulated.items()]
        self._back: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tell_node: Callable[[], None] = lambda: None
        self._tell_pod: Callable[[str], None] = lambda uid: None
        self._pods: Callable[[], Iterable[Pod]] = list
        self._begun = clock.monotonic()

    def connect(
        self,
        node_changed: Callable[[], None],
        pod_changed: Callable[[str], None],
        pods: Callable[[], Iterable[Pod]],
    ) -> None:
        """Who is to be told when what the node has changes, or the health of a pod's devices; and
        where the pods are that are active."""
        self._tell_node, self._tell_pod, self._pods = node_changed, pod_changed, pods

    # The life.

    async def run(self) -> None:
        """Until cancelled. Raises OSError if the sockets cannot be made."""
        for each in self.places:
            each.mkdir(mode=0o750, parents=True, exist_ok=True)
        paths.clear_sockets(self.places.plugins)
        door = Door(
            self.places.plugins / SOCKET, self._own / "registration.sock", self._registry.handlers
        )
        service = PodResourcesService(self._ledger, lambda: self._pods(), self._clock)
        told = Door(self.places.resources / SOCKET, self._own / "resources.sock", service.handlers)
        watcher = Watcher(self.places.watched, self._registry, self._clock)
        async with asyncio.TaskGroup() as tasks:
            for work in (self._registry, door, told, watcher, self._farewells):
                tasks.create_task(work.run())
            for plugin in self._simulated:
                tasks.create_task(plugin.serve(self.places.plugins))

    async def simulated(self) -> None:
        """Return when the devices that the node itself simulates are there."""
        for each in self._simulated:
            await self._back[each.resource].wait()

    def _changed(self, pods: set[str]) -> None:
        self._record()
        self._tell_node()
        for uid in pods:
            self._tell_pod(uid)

    def _returned(self, resource: str) -> None:
        self._back[resource].set()
        self._farewells.wake()

    def _record(self) -> None:
        try:
            self._checkpoint.write(self._ledger)
        except OSError as error:
            log.error("devices not written down error=%r", str(error))

    # What the node says.

    def amounts(self) -> Mapping[str, Amounts]:
        """What there is of each resource that a plugin ever offered."""
        return self._ledger.amounts()

    def manages(self, resource: str) -> bool:
        return resource in self._ledger.offers

    def known(self) -> Iterable[str]:
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

    # What pods take and give.

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
        for resource, number in self._wanted(container):
            held = self._ledger.holdings.get((owner.pod, owner.container, resource))
            if held is not None:
                await self._await_return(resource)
            if self._ledger.missing(owner, resource, number):
                again = reusable.get(resource, set())
                got[resource] = await self._obtain(owner, resource, number, again)
            elif held is not None:
                got[resource] = held.ids
        return got

    def _wanted(self, container: Container) -> list[tuple[str, int]]:
        """Resources of plugins that a container asks for, in the order of their names. Others are
        of the cluster, and somebody else's business."""
        limits = container.resources.limits
        return [
            (name, limits[name].value())
            for name in sorted(limits)
            if self.manages(name) and limits[name].value()
        ]

    async def _await_return(self, resource: str) -> None:
        """After a restart of the machine pods may be quicker than plugins."""
        left = self._begun + RETURN_SECONDS - self._clock.monotonic()
        if self._registry.plugin(resource) is None and left > 0:
            with contextlib.suppress(TimeoutError):
                await within(self._clock, left, self._back[resource].wait())

    async def _obtain(
        self, owner: Owner, resource: str, number: int, reusable: set[str]
    ) -> tuple[str, ...]:
        plugin = self._registry.plugin(resource)
        if plugin is None:
            raise AllocationError(f"unknown Device Plugin {resource}")
        async with self._choosing[resource]:
            choice = await self._choice(resource, number, reusable)
            preferred = await self._preferred(plugin, choice)
            ids = choice.decided(preferred)
            self._ledger.promise(resource, ids)
        try:
            answer = await plugin.allocate(in_order(ids), owner)
            self._ledger.hold(owner, resource, ids, wire.encode(answer))
        finally:
            self._ledger.take_back(resource, ids)
        self._record()
        return ids

    async def _preferred(self, plugin: Plugin, choice: Choice) -> Sequence[str]:
        if choice.open and plugin.options.get_preferred_allocation_available:
            return await plugin.prefer(choice)
        return ()

    async def _choice(self, resource: str, number: int, reusable: set[str]) -> Choice:
        """What there is to choose from; devices whose plugin is just being told that they are free
        are worth a moment."""
        until = self._clock.monotonic() + RELEASE_SECONDS
        while True:
            try:
                return self._ledger.choice(resource, number, reusable)
            except AllocationError:
                left = until - self._clock.monotonic()
                parting = any(each.resource == resource for each in self._ledger.farewells)
                if not parting or left <= 0 or self._registry.plugin(resource) is None:
                    raise
                with contextlib.suppress(TimeoutError):
                    await within(self._clock, left, self._farewells.next.wait())

    def release(self, uid: str) -> None:
        if self._ledger.release(uid):
            self._record()
            self._farewells.wake()

    # The start of a container.

    def given(self, pod: Pod, container: Container) -> Given:
        holdings = self._ledger.of_container(pod.metadata.uid, container.name)
        if not holdings:
            return Given()
        return artifacts.given(holdings, self._cdi, self._own / "nodes")

    async def pre_start(self, pod: Pod, container: Container, env: Mapping[str, str]) -> None:
        owner = _owner(pod, container)
        for resource, _ in self._wanted(container):
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


def _owner(pod: Pod, container: Container) -> Owner:
    meta = pod.metadata
    return Owner(meta.uid, container.name, meta.name, meta.namespace)


def _sendable(env: Mapping[str, str], owner: Owner) -> dict[str, str]:
    """Variables without those that a protobuf string cannot carry."""
    sent = {}
    for name, value in env.items():
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError:
            text = "variable not told to the plugin, it is no text name=%r pod=%s/%s container=%s"
            log.warning(text, name, owner.namespace, owner.pod_name, owner.container)
        else:
            sent[name] = value
    return sent


def find_directory(wanted: Path | None, own: Path) -> tuple[Path, Claim | None]:
    """The directory where plugins register: the one that is wanted, unless another agent has it,
    else the node's own."""
    for directory in (wanted, own):
        if directory is None:
            continue
        try:
            claim = Claim.stake(directory)
        except OSError as error:
            log.warning("no device plugins in directory=%s error=%r", directory, str(error))
            continue
        if claim is not None:
            return directory, claim
        log.warning("another agent has the device plugins of directory=%s", directory)
    return own, None
