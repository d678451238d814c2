"""The node agent as a whole: from its configuration and a server to the end."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import uvloop

from kedge import KUBERNETES
from kedge.api.core_v1.node_types import ContainerImage, Node
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.client.client import Client
from kedge.client.events import WARNING, Recorder
from kedge.machinery.clock import SystemClock
from kedge.machinery.errors import StatusError
from kedge.machinery.open_files import raise_limit
from kedge.node import machine, record, registration, security_modules
from kedge.node.access import Access
from kedge.node.certificates import Renewal
from kedge.node.cgroups.tree import NoCgroups, PodTree
from kedge.node.config import NodeConfig
from kedge.node.devices.devices import NodeDevices, find_directory
from kedge.node.environment import Variables
from kedge.node.eviction import Eviction
from kedge.node.files import PodFiles, WrittenPlaces
from kedge.node.hosts import resolv_conf
from kedge.node.image_collection import ImageCollection
from kedge.node.images import host
from kedge.node.images.host import HostImage
from kedge.node.images.images import Images
from kedge.node.images.mapping import Mapping
from kedge.node.images.registry import Registries
from kedge.node.images.store import Store
from kedge.node.network.bridge import Bridge
from kedge.node.network.netlink import Netlink
from kedge.node.parts import Parts, PodCgroups
from kedge.node.pods import Pods
from kedge.node.registration import Registration
from kedge.node.runtime.embedded import EmbeddedRuntime
from kedge.node.runtime.runtime import Dns, Level
from kedge.node.runtime.spawn import Spawn
from kedge.node.runtime_classes import RuntimeClasses
from kedge.node.server.server import NodeServer
from kedge.node.sources import Following, Sources
from kedge.node.user_namespaces import UserNamespaces
from kedge.node.volumes.volumes import PodVolumes
from kedge.restarter.bounded_log import BoundedLogHandler
from kedge.supervisor import cgroups
from kedge.supervisor.spread import spread
from kedge.web.watchdog import LoopPauses, watched

log = logging.getLogger(__name__)

MEASURED_AFTER: Final = 0.5
"""Seconds from the moment when a node is ready to the first look at what is used."""


def run(
    config: NodeConfig,
    begun: Spawn | None,
    find: Callable[[], Access],
    ready: Callable[[], None],
) -> None:
    """Run until SIGTERM or SIGINT; `begun` is a supervisor that is being started, `find` waits
    until the server is known, `ready` is called once the node is registered. Containers run on
    when the agent ends."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        handlers=[BoundedLogHandler("node.log")],
    )
    gc.set_threshold(20_000, 20, 50)
    raise_limit()
    uvloop.run(_run(config, begun, find, ready))


async def _run(
    config: NodeConfig,
    begun: Spawn | None,
    find: Callable[[], Access],
    ready: Callable[[], None],
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        pauses = LoopPauses()
        stack.enter_context(watched(SystemClock(), pauses))
        agent = await Agent.begin(config, begun, pauses, stack)
        access = await asyncio.to_thread(find)
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(agent.run(access, ready))
            await stop.wait()
            work.cancel()


class Agent:
    """Everything that one node is made of."""

    def __init__(
        self,
        config: NodeConfig,
        runtime: EmbeddedRuntime,
        images: Images,
        store: Store,
        bridge: Bridge | None,
        devices: NodeDevices,
        host_image: HostImage,
        pauses: LoopPauses,
    ) -> None:
        self._config = config
        self._host_image = host_image
        self._pauses = pauses
        self._clock = SystemClock()
        self._runtime = runtime
        self._images = images
        self._store = store
        self._bridge = bridge
        self._devices = devices
        self._machine = machine.look(config.state)

    @classmethod
    async def begin(
        cls, config: NodeConfig, begun: Spawn | None, pauses: LoopPauses, stack: AsyncExitStack
    ) -> "Agent":
        """Do all that takes no server."""
        for directory in (config.pods, config.logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            spread(str(directory))
        store = Store(config.images, SystemClock())
        mapping = Mapping.parse(config.image_map)
        shown = host.host_image(
            own=config.hidden, shown=config.host_image_shown, is_enabled=config.host_image
        )
        images = Images(
            store, Registries(), mapping, node=str(config.state), has_host=shown.is_enabled
        )
        bridge = find_bridge(config.state / "network")
        devices = find_devices(config, stack)
        # Whoever reached the sockets could give devices away, or take them.
        hidden = (*config.hidden, *devices.places)
        runtime = await EmbeddedRuntime.open(
            config.runtime,
            images,
            network=bridge,
            hidden=hidden,
            host_image=shown,
            listed=config.listed,
            begun=begun,
        )
        stack.push_async_callback(runtime.close)
        if bridge is not None:
            stack.callback(bridge.close)
        return cls(config, runtime, images, store, bridge, devices, shown, pauses)

    async def run(self, access: Access, ready: Callable[[], None]) -> None:
        """Until cancelled."""
        config, clock = self._config, self._clock
        client = access.client(f"kedge-node/v{KUBERNETES}")
        server = NodeServer(client, self._runtime, config.name, clock, self._pauses)
        try:
            if self._bridge is not None:
                await self._bridge.open(lambda: _address(access.url))
            port = await server.listen(config.address, config.port, access.serving())
            node = self._described(port)
            devices = self._devices
            exposed = config.exposed_labels
            this = Registration(client, clock, node, self._seen_images, devices, exposed)
            recorder = Recorder(client, clock, "kubelet", config.name)
            sources, following = Sources(client, clock), Following(client, clock)
            volumes = PodVolumes(
                config.pods,
                config.state / "memory",
                sources,
                following,
                this,
                recorder,
                clock,
                may_mount=self._runtime.level is Level.FULL,
            )
            volumes.open()
            pods = Pods(client, self._parts(client, recorder, sources, volumes, this), config.name)
            devices.connect(this.nudge, pods.wake, pods.active)
            places = WrittenPlaces(config.pods, config.runtime)
            eviction = Eviction(pods, volumes, places, clock)
            collection = ImageCollection(
                self._images, lambda *what: recorder.record(this.node, "Warning", *what), clock
            )
            self._write_record(port)
            async with asyncio.TaskGroup() as tasks:
                for work in (this, recorder, sources, following, volumes, pods, devices):
                    tasks.create_task(work.run())
                tasks.create_task(server.run(pods))
                tasks.create_task(eviction.run())
                tasks.create_task(collection.run())
                if self._bridge is not None:
                    tasks.create_task(self._bridge.run())
                await this.registered.wait()
                tasks.create_task(self._record_restarts(recorder, this))
                renewal = Renewal(access, client, clock, config.name, config.address)
                tasks.create_task(renewal.run(asks=bool(record.read_server(config.state))))
                await pods.synced.wait()
                await devices.simulated()
                gc.freeze()
                gc.enable()
                ready()
                tasks.create_task(self._measure(pods, this, client, server))
        finally:
            await server.close()
            await client.close()

    async def _record_restarts(self, recorder: Recorder, this: Registration) -> None:
        """Record events on the node about restarts of its agent and its supervisor."""
        if reason := self._config.restart_reason:
            message = f"The node agent {reason}; it was restarted, and containers kept running"
            recorder.record(this.node, WARNING, "AgentRestarted", message)
        while True:
            message = await self._runtime.restarted()
            log.warning("supervisor restarted pid=%d", self._runtime.supervisor)
            recorder.record(this.node, WARNING, "SupervisorRestarted", message)

    async def _measure(
        self, pods: Pods, this: Registration, client: Client, server: NodeServer
    ) -> None:
        """What pods use. Nobody waits for it, so it is not even imported before the rest of what
        starts together has had its turn."""
        await self._clock.sleep(MEASURED_AFTER)
        from kedge.node.stats.measuring import measure

        await measure(
            self._config,
            self._machine,
            self._runtime,
            pods,
            [client],
            self._clock,
            uid=lambda: this.node.metadata.uid,
            tell=server.tell_usage,
        )

    def _parts(
        self,
        client: Client,
        recorder: Recorder,
        sources: Sources,
        volumes: PodVolumes,
        this: Registration,
    ) -> Parts:
        config = self._config
        files = PodFiles(config.pods, config.logs)
        return Parts(
            runtime=self._runtime,
            images=self._images,
            secrets=PullSecrets(sources),
            volumes=volumes,
            environment=Variables(sources, this, volumes.place),
            devices=self._devices,
            cgroups=self._cgroups(),
            user_ids=UserNamespaces(self._runtime, files),
            events=recorder,
            files=files,
            classes=RuntimeClasses(client),
            here=this,
            clock=self._clock,
            dns=_machine_dns,
            hosts=_machine_hosts,
            profiles=config.state / "seccomp",
            security_modules=security_modules.enabled(),
        )

    def _cgroups(self) -> PodCgroups:
        if self._runtime.level is not Level.FULL:
            return NoCgroups(self._machine.memory)
        config = self._config
        return PodTree(cgroups.here(), config.cgroup, self._machine.memory, config.max_pids)

    def _described(self, port: int) -> Node:
        cidr = str(self._bridge.network) if self._bridge is not None else ""
        return registration.described(
            self._config,
            self._machine,
            self._runtime.level,
            port=port,
            pod_cidr=cidr,
            user_namespaces=not self._runtime.no_user_namespaces,
        )

    def _seen_images(self) -> Sequence[ContainerImage]:
        return [
            ContainerImage(names=[*each.digests, *each.names], sizeBytes=each.record.size)
            for each in self._store.listed()
        ]

    def _write_record(self, port: int) -> None:
        config, level = self._config, self._runtime.level
        written = record.Record(
            name=config.name,
            cluster=config.cluster,
            level=level.value,
            cgroup=config.cgroup if level is Level.FULL else "",
            port=port,
            pod_cidr=str(self._bridge.network) if self._bridge is not None else "",
            host_image=self._host_image,
        )
        record.write(config.state, written)


class PullSecrets:
    """Reads the secrets that images are pulled with. Fulfils parts.PullSecrets."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def of(self, pod: Pod) -> Sequence[Secret]:
        found = []
        for reference in pod.spec.imagePullSecrets:
            try:
                secret = await self._sources.secret(pod.metadata.namespace, reference.name)
            except StatusError:
                # One that may not be read is as good as missing: the pull says what it lacked.
                continue
            if secret is not None:
                found.append(secret)
        return found


def find_devices(config: NodeConfig, stack: AsyncExitStack) -> NodeDevices:
    """The node's devices, in a directory that is the node's alone until the stack ends."""
    directory, claim = find_directory(config.plugins, config.own_plugins)
    if claim is not None:
        stack.callback(claim.close)
    own = config.state / "devices"
    return NodeDevices(directory, own, SystemClock(), simulated=config.devices)


def find_bridge(directory: Path) -> Bridge | None:
    """The node's network, if this user may make one."""
    if not may_make_links():
        return None
    return Bridge.find(directory)


def may_make_links() -> bool:
    try:
        with Netlink() as netlink:
            # One that is there is another agent's that tries just now, or was killed as it did.
            with contextlib.suppress(FileExistsError):
                netlink.add_bridge("kedge-probe")
            netlink.remove_link("kedge-probe")
    except OSError:
        return False
    return True


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 443


def _machine_dns() -> Dns:
    return resolv_conf(_read("/etc/resolv.conf"))


def _machine_hosts() -> str:
    return _read("/etc/hosts")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
