"""The parts of a node that need no API server; they are created while the server starts."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple, Protocol

from kedge.api.core_v1.node_types import ContainerImage
from kedge.machinery.clock import Clock, SystemClock, machine_clock
from kedge.node.cgroups.tree import NoCgroups, PodCgroupTree
from kedge.node.config import NodeConfig
from kedge.node.devices.devices import NodeDevices, find_directory
from kedge.node.host import machine
from kedge.node.host.machine import MachineInfo
from kedge.node.images import host
from kedge.node.images.credentials import CredentialSource
from kedge.node.images.garbage_collector import CollectableImages
from kedge.node.images.host import HostImage
from kedge.node.images.images import ImageService
from kedge.node.images.mapping import ImageMapping
from kedge.node.images.registry import RegistryClient
from kedge.node.images.registry_hosts import RegistrySettings
from kedge.node.images.store import ImageStore
from kedge.node.network.network_detection import OtherMachines, PodNetworkState, find_bridge
from kedge.node.network.node_network import find_underlay, pod_mtu
from kedge.node.pod.dependencies import PodCgroups
from kedge.node.runtime.embedded import EmbeddedRuntime
from kedge.node.runtime.spawn import SupervisorStart
from kedge.node.volumes.empty_dir import MemoryMounter
from kedge.node.volumes.volumes import VolumeImages
from kedge.supervisor.files.spread import spread
from kedge.web.watchdog import LoopPauses

log = logging.getLogger(__name__)


class NodeImages(VolumeImages, CollectableImages, Protocol):
    """The images of a node: kedge's own, or those of a container runtime."""


class NodeFoundation(NamedTuple):
    """The machine, its runtime, images, network and devices, as one node uses them."""

    config: NodeConfig
    runtime: EmbeddedRuntime
    images: NodeImages
    images_in_status: Callable[[], Sequence[ContainerImage]]
    """Returns the images as the Node's status lists them."""
    network: PodNetworkState
    machines: OtherMachines | None
    """None if other machines cannot reach this one."""
    devices: NodeDevices
    host_image: HostImage
    machine: MachineInfo
    pauses: LoopPauses
    clock: Clock

    @property
    def machine_clock(self) -> Clock:
        """The clock for dealings with processes and the network."""
        return machine_clock(self.clock)

    @property
    def may_mount(self) -> bool:
        """Whether the agent itself may mount file systems."""
        return self.runtime.capabilities.is_root

    @property
    def memory_mounter(self) -> MemoryMounter | None:
        """The mounter of volumes in memory if the agent may not mount; None if there is none."""
        machine = self.runtime.capabilities
        return self.runtime if machine.namespaces and machine.user_namespace else None

    def pod_cgroups(self) -> PodCgroups:
        """Return the control groups of pods."""
        cgroups, config = self.runtime.cgroups, self.config
        if cgroups is None:
            return NoCgroups(self.machine.memory)
        return PodCgroupTree(cgroups, config.cgroup, self.machine.memory, config.max_pids)


async def create(
    config: NodeConfig,
    begun: SupervisorStart | None,
    pauses: LoopPauses,
    stack: AsyncExitStack,
) -> NodeFoundation:
    """Create the foundation; the stack closes it."""
    for directory in (config.pods, config.logs):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        spread(str(directory))
    clock = clock_of(config)
    machine_time = machine_clock(clock)
    store = ImageStore(config.images, machine_time)
    shown = host.host_image(
        own=config.hidden, shown=config.host_image_shown, is_enabled=config.host_image
    )
    registries = registry_settings(config)
    for each in registries.described():
        log.info("registries: %s", each)
    underlay = find_underlay(config.underlay_address)
    network = await find_bridge(config, begun, pod_mtu(underlay, config.node_network))
    devices = find_devices(config, machine_time, stack)
    runtime: EmbeddedRuntime
    images: NodeImages
    listed: Callable[[], Sequence[ContainerImage]] = partial(stored_images, store)
    if config.cri_socket is None:
        images = own_images = ImageService(
            store,
            RegistryClient(registries),
            ImageMapping.parse(config.image_map),
            node=str(config.state),
            has_host=shown.is_enabled,
            own_credentials=node_credentials(config),
        )
        runtime = await EmbeddedRuntime.open(
            config.runtime,
            own_images,
            network=network.of_pods,
            # A pod that can connect to these sockets could allocate devices of other pods.
            hidden=(*config.hidden, *devices.places),
            host_image=shown,
            listed=config.listed,
            begun=begun,
        )
    else:
        # Few nodes need the import.
        from kedge.node.runtime.cri.opening import open_runtime

        runtime, found = await open_runtime(
            config, network.of_pods, node_credentials(config), machine_time, begun
        )
        images, listed = found, found.in_status
    stack.push_async_callback(runtime.close)
    if network.loopback is not None:
        stack.callback(network.loopback.close)
    bridge, machines = network.bridge, None
    if bridge is not None:
        stack.callback(bridge.close)
        # A namespace of its own has no link to other machines.
        if bridge.namespace.is_machine:
            machines = OtherMachines.find(config, underlay)
    return NodeFoundation(
        config,
        runtime,
        images,
        listed,
        network,
        machines,
        devices,
        shown,
        machine.read(config.state),
        pauses,
        clock,
    )


def stored_images(store: ImageStore) -> Sequence[ContainerImage]:
    """Return kedge's own images as the Node's status lists them."""
    return [
        ContainerImage(names=[*each.digests, *each.names], sizeBytes=each.record.size)
        for each in store.listed()
    ]


def registry_settings(config: NodeConfig) -> RegistrySettings:
    """Return how the node reaches registries."""
    return RegistrySettings(
        mirrors=config.registry_mirrors,
        insecure=config.insecure_registries,
        authorities=config.registry_authorities,
        proxies=config.proxies,
    )


def node_credentials(config: NodeConfig) -> CredentialSource | None:
    """Return the credentials with which all pods may pull; None if there are none."""
    if config.registry_credentials is None:
        return None
    from kedge.node.images.docker_config import DockerCredentials

    # Credential helpers run as this user, in this process's environment.
    return DockerCredentials(config.registry_credentials, os.environ)


def clock_of(config: NodeConfig) -> Clock:
    """Return the clock of a node: that of the machine, unless tests may move it."""
    if not config.testing:
        return SystemClock()
    from kedge.machinery.travel_clock import TravelClock

    return TravelClock()


def find_devices(config: NodeConfig, clock: Clock, stack: AsyncExitStack) -> NodeDevices:
    """Return the node's devices, with a directory that other agents cannot use until the stack
    ends."""
    directory, claim = find_directory(config.plugins, config.own_plugins)
    if claim is not None:
        stack.callback(claim.close)
    own = config.state / "devices"
    return NodeDevices(directory, own, clock, simulated=config.devices)
