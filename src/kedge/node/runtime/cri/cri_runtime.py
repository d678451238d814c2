"""CriRuntime: runs containers with containerd, CRI-O or another runtime that speaks CRI."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from msgspec.structs import replace

from kedge import KUBERNETES
from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.methods import Method
from kedge.machinery.clock import Clock, SystemClock
from kedge.node.images.image import LocalImage
from kedge.node.network.netlink import Netlink
from kedge.node.runtime import supervisor_spec
from kedge.node.runtime.channel import SupervisorChannel
from kedge.node.runtime.cri import (
    cni_plugin,
    crio_configuration,
    features,
    leftover_groups,
    log_rotation,
    oom_score,
    streams,
    sub_paths,
    translation,
)
from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.cri.connection import CALL_SECONDS, CriConnection, UnsupportedCall
from kedge.node.runtime.cri.container_events import (
    SeenContainer,
    event_of,
    events_between,
    merged,
    removal_of,
)
from kedge.node.runtime.cri.namespace_sockets import made_within, netlink_socket, tcp_socket
from kedge.node.runtime.cri.translation import ContainerRecord, UnreadableSpec
from kedge.node.runtime.embedded import EmbeddedRuntime, PodNetwork
from kedge.node.runtime.owned_tasks import OwnedTasks
from kedge.node.runtime.runtime import (
    NO_FEATURES,
    ContainerConfig,
    ContainerEvent,
    ContainerLimits,
    ContainerStream,
    ExecResult,
    NotFoundError,
    PodSandbox,
    RunState,
    RuntimeContainer,
    RuntimeFailure,
    RuntimeFeatures,
    SandboxConfig,
)
from kedge.node.runtime.spawn import SupervisorStart

log = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")

POLL_SECONDS: Final = 1.0
"""Between two lists of the runtime, as in the kubelet. The end of a container is seen at once."""
READY_SECONDS: Final = 10.0
"""For a runtime to read its network."""
_PAUSE: Final = 0.1
_ENDED_PAUSE: Final = 0.02
_ENDED_LOOKS: Final = 50
"""A process ends a little before its runtime says so."""
_MOST_OUTPUT: Final = 256 << 10
_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
NO_USER_NAMESPACES: Final = (
    "pods with hostUsers: false need kedge's own runtime, or one with user namespaces"
)


class ContainerProcessIds(NamedTuple):
    """The process of a running container, and its owner."""

    pid: int
    user: int
    group: int
    groups: Sequence[int]


class _NoImages:
    """The images of a supervisor that runs no containers."""

    def get(self, id_: str) -> LocalImage | None:
        return None

    def hold(self, id_: str, container: str) -> None: ...

    def release(self, container: str) -> None: ...

    def release_others(self, containers: Collection[str]) -> None: ...


class CriRuntime(EmbeddedRuntime):
    """Runs containers with a runtime at a Unix socket. Fulfils
    kedge.node.runtime.runtime.Runtime.

    The node keeps its supervisor, which holds sockets while the agent restarts and mounts volumes
    in memory, but runs no containers.
    """

    def __init__(
        self,
        directory: Path,
        connection: CriConnection,
        node: str,
        *,
        network: PodNetwork | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`node` distinguishes the sandboxes of this node from all others of the runtime."""
        super().__init__(directory, _NoImages(), clock=clock)
        self.connection = connection
        self._node = node
        self._pods_network = network
        self._time = clock or SystemClock()
        self._sandbox_specs: dict[str, SandboxConfig] = {}
        self._namespaces: dict[str, str] = {}
        self._processes: dict[str, ContainerProcessIds] = {}
        self._groups: dict[str, str] = {}
        """The control groups of containers, whose names differ between runtimes."""
        self._ended: dict[str, RuntimeContainer] = {}
        """Containers that do not change any more."""
        self._seen: dict[str, SeenContainer] = {}
        self._watches: set[asyncio.Queue[ContainerEvent | None]] = set()
        self._pidfds: dict[str, int] = {}
        self._looks = OwnedTasks()
        self._unreadable: set[str] = set()
        """Sandboxes and containers that were skipped, and logged once."""
        self._sub_paths = directory / "subpaths"
        self._features = NO_FEATURES

    @classmethod
    async def connect(
        cls,
        directory: Path,
        connection: CriConnection,
        node: str,
        *,
        network: PodNetwork | None = None,
        clock: Clock | None = None,
        begun: SupervisorStart | None = None,
    ) -> Self:
        """Connect to the runtime and to the node's supervisor, and take over running pods."""
        runtime = cls(directory, connection, node, network=network, clock=clock)
        runtime._begun = begun
        await runtime._connected()
        await runtime._greet()
        await runtime._adopt()
        return runtime

    async def _connect(self) -> SupervisorChannel:
        connected = await super()._connect()
        # Those of the supervisor are of no use: it runs no containers.
        self._set_features(self._features)
        return connected

    async def _greet(self) -> None:
        """Learn which runtime it is, and whether it can work for this node."""
        call = self.connection.call
        version = await call(m.VERSION, m.CriVersionRequest(version=KUBERNETES))
        self.name, self.version = version.runtime_name, version.runtime_version
        with contextlib.suppress(UnsupportedCall):
            config = await call(m.RUNTIME_CONFIG, Empty())
            if config.linux is not None and config.linux.cgroup_driver == m.SYSTEMD:
                raise RuntimeFailure(
                    f"{self.name} has systemd manage control groups, but kedge makes those of pods"
                    " itself: configure the driver cgroupfs (containerd: SystemdCgroup = false,"
                    ' CRI-O: cgroup_manager = "cgroupfs" and conmon_cgroup = "pod")'
                )
        status = await call(m.STATUS, m.CriVerbose(verbose=True))
        self._features = features.of_runtime(version, status)
        self._set_features(self._features)
        if self.name == crio_configuration.NAME:
            places = await crio_configuration.network_directories(self.connection.socket)
        else:
            places = cni_plugin.directories(status.info)
        cni_plugin.install(places)
        await self._wait_for_network()

    def _set_features(self, found: RuntimeFeatures) -> None:
        self.features = found
        self.no_user_namespaces = "" if found.user_namespaces else NO_USER_NAMESPACES

    async def _wait_for_network(self) -> None:
        deadline = self._time.monotonic() + READY_SECONDS
        while True:
            status = await self.connection.call(m.STATUS, m.CriVerbose())
            conditions = status.status.conditions if status.status is not None else ()
            missing = [each for each in conditions if not each.status]
            if not missing:
                return
            if self._time.monotonic() > deadline:
                said = "; ".join(each.message for each in missing)
                raise RuntimeFailure(f"{self.name} is not ready: {said}")
            await self._time.sleep(_PAUSE)

    async def _adopt(self) -> None:
        """Take over the pods of an earlier agent: their addresses and host ports."""
        listed = await self._listed_sandboxes()
        network = self._pods_network
        if network is None:
            return
        ready = [each for each in listed if each.state == m.SANDBOX_READY]
        await network.detach_others({each.id for each in ready})
        for each in ready:
            spec = self._sandbox_specs.get(each.id)
            if spec is None or spec.host_network:
                continue
            if address := network.address_of(each.id):
                await network.adopt(each.id, spec, address)

    async def _call(self, method: Method[Q, A], request: Q, seconds: float = CALL_SECONDS) -> A:
        """Call a method for which a timeout is a failure of the runtime."""
        try:
            return await self.connection.call(method, request, seconds)
        except TimeoutError as error:
            raise RuntimeFailure(str(error)) from error

    # Sandboxes.

    async def sandboxes(self) -> list[PodSandbox]:
        listed = await self._listed_sandboxes()
        return [self._sandbox(each) for each in listed if each.id in self._sandbox_specs]

    async def _listed_sandboxes(self) -> Sequence[m.CriSandbox]:
        """Return the sandboxes of the node, and learn their specs; some may be unreadable."""
        known = {*self._sandbox_specs}
        chosen = m.CriSandboxFilter(label_selector={translation.NODE_LABEL: self._node})
        request = m.CriListSandboxesRequest(filter=chosen)
        items = (await self.connection.call(m.LIST_SANDBOXES, request)).items
        for gone in known - {each.id for each in items}:
            self._sandbox_specs.pop(gone, None)
        for each in items:
            if each.id in known:
                # It may have been removed while the list was under way.
                continue
            try:
                self._sandbox_specs[each.id] = translation.sandbox_spec(each)
            except UnreadableSpec as error:
                self._skip(f"sandbox {each.id}", error)
        return items

    def _skip(self, what: str, error: UnreadableSpec) -> None:
        if what not in self._unreadable:
            self._unreadable.add(what)
            log.warning("the container runtime has a %s that is not managed: %s", what, error)

    def _sandbox(self, sandbox: m.CriSandbox) -> PodSandbox:
        network = self._pods_network
        return translation.pod_sandbox(sandbox, network.address_of(sandbox.id) if network else "")

    async def run_sandbox(self, spec: SandboxConfig) -> PodSandbox:
        if spec.first_id and not self.features.user_namespaces:
            # An older runtime skips what it does not know, and would give the machine's users.
            raise RuntimeFailure(NO_USER_NAMESPACES)
        request = m.CriRunSandboxRequest(config=translation.sandbox_config(spec, self._node))
        try:
            id_ = (await self._call(m.RUN_SANDBOX, request)).pod_sandbox_id
        except RuntimeFailure:
            # CRI-O leaves the groups of a sandbox that it could not make.
            leftover_groups.remove(spec.cgroup_parent, self._managed_hierarchies())
            raise
        self._sandbox_specs[id_] = spec
        try:
            if not spec.host_network:
                await self._attach_sandbox(id_, spec)
            chosen = m.CriListSandboxesRequest(filter=m.CriSandboxFilter(id=id_))
            [made] = (await self.connection.call(m.LIST_SANDBOXES, chosen)).items
        except BaseException:
            await self.remove_sandbox(id_)
            raise
        return self._sandbox(made)

    async def _attach_sandbox(self, sandbox: str, spec: SandboxConfig) -> None:
        """Attach a sandbox to the network of the node."""
        namespace = await self._namespace(sandbox)
        try:
            with Netlink(await made_within(namespace, netlink_socket)) as inside:
                inside.raise_link(inside.index("lo"))
            if self._pods_network is not None:
                inner = await made_within(namespace, netlink_socket)
                await self._pods_network.attach(sandbox, spec, namespace, inner.detach())
        except OSError as error:
            raise RuntimeFailure(f"cannot set up the network of the pod: {error}") from error

    async def _namespace(self, sandbox: str) -> str:
        """Return the path of a sandbox's network namespace."""
        known = self._namespaces.get(sandbox)
        if known is None:
            request = m.CriSandboxId(pod_sandbox_id=sandbox, verbose=True)
            status = await self.connection.call(m.SANDBOX_STATUS, request)
            known = translation.network_namespace(status.info)
            if not known:
                raise RuntimeFailure(
                    f"{self.name} does not tell the network namespace of the sandbox {sandbox}"
                )
            self._namespaces[sandbox] = known
        return known

    async def stop_sandbox(self, sandbox: str) -> None:
        await self._kill_containers_of(sandbox)
        with contextlib.suppress(NotFoundError):
            await self._call(m.STOP_SANDBOX, m.CriSandboxId(pod_sandbox_id=sandbox))
        if self._pods_network is not None:
            await self._pods_network.detach(sandbox)
        await self.poll()

    async def _kill_containers_of(self, sandbox: str) -> None:
        """End what runs in a sandbox. CRI-O would give its programs all the time of the call."""
        running = [
            each.id
            for each in await self._listed_containers()
            if each.pod_sandbox_id == sandbox and each.state == m.RUNNING
        ]
        await asyncio.gather(*(self.stop_container(each, 0) for each in running))

    async def remove_sandbox(self, sandbox: str) -> None:
        logs = [
            record.log_path
            for each, record in self._records(await self._listed_containers())
            if each.pod_sandbox_id == sandbox
        ]
        await self.stop_sandbox(sandbox)
        with contextlib.suppress(NotFoundError):
            await self._call(m.REMOVE_SANDBOX, m.CriSandboxId(pod_sandbox_id=sandbox))
        for log in logs:
            log_rotation.remove(log)
        await asyncio.to_thread(sub_paths.unmount_all, self._sub_paths / sandbox)
        self._namespaces.pop(sandbox, None)
        spec = self._sandbox_specs.pop(sandbox, None)
        if spec is not None:
            leftover_groups.remove(spec.cgroup_parent, self._managed_hierarchies())
        await self.poll()

    def _managed_hierarchies(self) -> set[str]:
        return {each.place for each in self.cgroups.hierarchies} if self.cgroups else set()

    # Containers.

    async def containers(self) -> list[RuntimeContainer]:
        found = []
        for each in await self._listed_containers():
            try:
                found.append(self._ended.get(each.id) or await self.container(each.id))
            except UnreadableSpec as error:
                self._skip(f"container {each.id}", error)
            except NotFoundError:
                continue
        return found

    def _records(
        self, listed: Sequence[m.CriContainer]
    ) -> list[tuple[m.CriContainer, ContainerRecord]]:
        """Return the containers that this release reads, with their records."""
        found = []
        for each in listed:
            try:
                found.append((each, translation.record_of(each.annotations)))
            except UnreadableSpec as error:
                self._skip(f"container {each.id}", error)
        return found

    async def _listed_containers(self) -> Sequence[m.CriContainer]:
        chosen = m.CriContainerFilter(label_selector={translation.NODE_LABEL: self._node})
        request = m.CriListContainersRequest(filter=chosen)
        return (await self.connection.call(m.LIST_CONTAINERS, request)).containers

    async def container(self, container: str) -> RuntimeContainer:
        is_known = container in self._processes
        request = m.CriContainerStatusRequest(container_id=container, verbose=not is_known)
        answer = await self.connection.call(m.CONTAINER_STATUS, request)
        status = answer.status or m.CriContainerStatus()
        if translation.SPEC not in status.annotations:
            raise NotFoundError(f"the container {container} does not belong to this node")
        if status.state == m.RUNNING and not is_known:
            self._processes[container] = _process(translation.process_id(answer.info))
        if group := translation.control_group(answer.info):
            self._groups[container] = group
        process = self._processes.get(container)
        record = translation.record_of(status.annotations)
        seen = translation.runtime_container(
            status,
            record,
            pid=process.pid if process else 0,
            cgroup=self._groups.get(container) or f"{record.cgroup_parent}/{container}",
            runtime=self.name,
        )
        if process is not None and process.pid:
            seen = replace(seen, **self._owner(record.sandbox, process))
        if seen.state is RunState.EXITED:
            self._ended[container] = seen
        return seen

    def _owner(self, sandbox: str, process: ContainerProcessIds) -> dict[str, Any]:
        """Return the user and the groups of a process as the container sees them."""
        spec = self._sandbox_specs.get(sandbox)
        first = spec.first_id if spec is not None else 0
        return {
            "user": process.user - first,
            "group": process.group - first,
            "groups": [each - first for each in process.groups],
        }

    async def create_container(self, sandbox: str, spec: ContainerConfig) -> str:
        of_sandbox = self._sandbox_specs.get(sandbox)
        if of_sandbox is None:
            raise NotFoundError(f"there is no sandbox {sandbox}")
        for mount in spec.mounts:
            supervisor_spec.make_source(mount)
        spec, unmet = translation.with_oom_score(spec, oom_score.lowest())
        record = translation.container_record(
            spec, sandbox, of_sandbox, unmet=unmet, features=self.features
        )
        log_rotation.make_directory(record.log_path)
        place = self._sub_paths / sandbox / f"{spec.name}-{spec.attempt}"
        mounts = await asyncio.to_thread(sub_paths.mounted, spec.mounts, place)
        request = m.CriCreateRequest(
            pod_sandbox_id=sandbox,
            config=translation.container_config(
                spec, of_sandbox, mounts, record, self._node, self.features
            ),
            sandbox_config=translation.sandbox_config(of_sandbox, self._node),
        )
        try:
            made = await self._call(m.CREATE_CONTAINER, request)
        except BaseException:
            await asyncio.to_thread(sub_paths.unmount_all, place)
            raise
        self._note(made.container_id, SeenContainer(sandbox, of_sandbox.uid, RunState.CREATED))
        return made.container_id

    async def start_container(self, container: str) -> None:
        await self._call(m.START_CONTAINER, m.CriContainerId(container_id=container))
        await self._look_at(container)

    async def stop_container(self, container: str, grace: float) -> None:
        if container in self._ended:
            # CRI-O would move the time of its end.
            return
        request = m.CriStopRequest(container_id=container, timeout=translation.whole_seconds(grace))
        try:
            await self._call(m.STOP_CONTAINER, request, grace + CALL_SECONDS)
        except NotFoundError:
            return
        # CRI-O answers a little before it says that the container has ended.
        await self._await_end(container)

    async def remove_container(self, container: str) -> None:
        try:
            known = await self.container(container)
        except NotFoundError:
            return
        if known.state is RunState.RUNNING:
            # CRI-O would give the program all the time of the call.
            await self.stop_container(container, 0)
        await self._call(m.REMOVE_CONTAINER, m.CriContainerId(container_id=container))
        log_rotation.remove(known.log_path)
        place = self._sub_paths / known.sandbox / f"{known.name}-{known.attempt}"
        await asyncio.to_thread(sub_paths.unmount_all, place)
        self._note_removal(container)

    async def update_container(self, container: str, resources: ContainerLimits) -> None:
        request = m.CriUpdateRequest(container_id=container, linux=translation.resources(resources))
        try:
            await self._call(m.UPDATE_CONTAINER, request)
        except RuntimeFailure:
            # CRI-O does not say which failure it is if the container is gone.
            await self.container(container)
            raise

    async def exceed_memory(self, container: str) -> None:
        raise RuntimeFailure("memory can be exceeded on purpose with kedge's own runtime only")

    # Commands and streams.

    async def execute(self, container: str, argv: Sequence[str], patience: float) -> ExecResult:
        request = m.CriExecSyncRequest(
            container_id=container, cmd=argv, timeout=translation.whole_seconds(patience)
        )
        done = await self.connection.call(m.EXEC_SYNC, request, patience + _PAUSE)
        if translation.has_timed_out(done):
            raise TimeoutError(f"{m.EXEC_SYNC.name} took too long: {done.stderr.decode()}")
        return ExecResult(
            exit_code=done.exit_code,
            stdout=done.stdout[:_MOST_OUTPUT],
            stderr=done.stderr[:_MOST_OUTPUT],
        )

    async def exec_stream(
        self, container: str, argv: Sequence[str], *, tty: bool, stdin: bool
    ) -> ContainerStream:
        request = m.CriExecRequest(
            container_id=container, cmd=argv, tty=tty, stdin=stdin, stdout=True, stderr=not tty
        )
        address = await self._call(m.EXEC, request)
        opened = await streams.connect(address.url)
        await opened.open(stdin=stdin, stdout=True, stderr=not tty, tty=tty)
        return opened

    async def attach(self, container: str, *, stdin: bool) -> ContainerStream:
        tty, has_stdin = await self._terminal(container)
        wants_stdin = stdin and has_stdin
        request = m.CriAttachRequest(
            container_id=container, stdin=wants_stdin, tty=tty, stdout=True, stderr=not tty
        )
        address = await self._call(m.ATTACH, request)
        opened = await streams.connect(address.url, lambda: self._exit_code(container))
        await opened.open(stdin=wants_stdin, stdout=True, stderr=not tty, tty=tty)
        return opened

    async def _terminal(self, container: str) -> tuple[bool, bool]:
        """Return whether a container has a terminal, and whether it has an input."""
        request = m.CriContainerStatusRequest(container_id=container)
        answer = await self.connection.call(m.CONTAINER_STATUS, request)
        status = answer.status or m.CriContainerStatus()
        record = translation.record_of(status.annotations)
        return record.tty, record.stdin

    async def _exit_code(self, container: str) -> int:
        while (seen := await self.container(container)).state is RunState.RUNNING:
            await self._time.sleep(_PAUSE)
        return seen.exit_code

    async def dial(self, sandbox: str, port: int) -> int:
        failure: OSError | None = None
        for family, address in _LOOPBACK.items():
            try:
                connecting = await self._socket(sandbox, family)
            except OSError as error:
                failure = failure or error
                continue
            try:
                await asyncio.get_running_loop().sock_connect(connecting, (address, port))
                return connecting.detach()
            except OSError as error:
                failure = failure or error
            connecting.close()
        reason = os.strerror(failure.errno or 0) if failure else ""
        raise RuntimeFailure(f"failed to connect to localhost:{port} inside the pod: {reason}")

    async def _socket(self, sandbox: str, family: socket.AddressFamily) -> socket.socket:
        spec = self._sandbox_specs.get(sandbox)
        if spec is None:
            raise NotFoundError(f"there is no sandbox {sandbox}")
        if spec.host_network:
            return tcp_socket(family)
        return await made_within(await self._namespace(sandbox), lambda: tcp_socket(family))

    # Events.

    def watch(self) -> AsyncIterator[ContainerEvent]:
        queue: asyncio.Queue[ContainerEvent | None] = asyncio.Queue()
        self._watches.add(queue)
        return self._followed(queue)

    async def _followed(
        self, queue: "asyncio.Queue[ContainerEvent | None]"
    ) -> AsyncIterator[ContainerEvent]:
        """Yield events; list the runtime's containers each second, and when a process has ended."""
        time = asyncio.get_running_loop().time
        deadline = time() + POLL_SECONDS
        try:
            while True:
                event: ContainerEvent | None = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        event = await queue.get()
                if event is not None:
                    yield event
                    if time() < deadline:
                        continue
                try:
                    await self.poll()
                except (RuntimeFailure, TimeoutError):
                    return
                deadline = time() + POLL_SECONDS
        finally:
            self._watches.discard(queue)

    async def poll(self) -> None:
        """Compare the runtime's list with the last one, and rotate logs."""
        known = dict(self._seen)
        records = self._records(await self._listed_containers())
        listed = {
            each.id: SeenContainer(
                each.pod_sandbox_id, record.pod_uid, translation.run_state(each.state)
            )
            for each, record in records
        }
        now = merged(known, self._seen, listed)
        before, self._seen = self._seen, now
        for event in events_between(before, now):
            self._publish(event)
        for gone in before.keys() - now.keys():
            self._forget(gone)
        for id_ in [id_ for id_, seen in now.items() if seen.state is RunState.RUNNING]:
            await self._follow_process(id_)
        for each, record in records:
            if each.state == m.RUNNING and log_rotation.needs_rotation(record.log_path):
                with contextlib.suppress(OSError):
                    await self._rotate(each.id, record.log_path)

    async def _rotate(self, container: str, path: str) -> None:
        renamed = log_rotation.rotate(path, int(self._time.now().timestamp() * 1e9))
        try:
            await self._call(m.REOPEN_LOG, m.CriContainerId(container_id=container))
        except BaseException as error:
            # The runtime writes on into the renamed file, which is not read and not rotated again.
            log_rotation.undo(path, renamed)
            if not isinstance(error, RuntimeFailure | NotFoundError):
                raise
        else:
            log_rotation.remove_oldest(path)

    async def _look_at(self, container: str) -> None:
        """Publish the change of one container that this node has made."""
        seen = await self.container(container)
        uid = self._sandbox_specs[seen.sandbox].uid if seen.sandbox in self._sandbox_specs else ""
        self._note(container, SeenContainer(seen.sandbox, uid, seen.state))
        if seen.state is RunState.RUNNING:
            await self._follow_process(container)

    def _note(self, container: str, now: SeenContainer) -> None:
        event = event_of(container, self._seen.get(container), now)
        self._seen[container] = now
        if event is not None:
            self._publish(event)

    def _note_removal(self, container: str) -> None:
        last = self._seen.pop(container, None)
        self._forget(container)
        if last is not None:
            self._publish(removal_of(container, last))

    def _publish(self, event: ContainerEvent | None) -> None:
        for queue in self._watches:
            queue.put_nowait(event)

    async def _follow_process(self, container: str) -> None:
        """Have the kernel tell when the process of a container ends."""
        if container in self._pidfds:
            return
        if container not in self._processes:
            with contextlib.suppress(NotFoundError):
                await self.container(container)
        process = self._processes.get(container)
        if process is None or not process.pid or container in self._pidfds:
            return
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            self._pidfds[container] = descriptor
            loop = asyncio.get_running_loop()
            loop.add_reader(descriptor, self._process_ended, container)

    def _process_ended(self, container: str) -> None:
        self._release(container)
        self._looks.start(self._await_end(container))

    async def _await_end(self, container: str) -> None:
        """Look at a container whose process has ended until the runtime knows it too."""
        for _ in range(_ENDED_LOOKS):
            try:
                await self._look_at(container)
            except (RuntimeFailure, NotFoundError, TimeoutError):
                return
            seen = self._seen.get(container)
            if seen is None or seen.state is RunState.EXITED:
                return
            self._release(container)
            await self._time.sleep(_ENDED_PAUSE)

    def _release(self, container: str) -> None:
        descriptor = self._pidfds.pop(container, -1)
        if descriptor >= 0:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _forget(self, container: str) -> None:
        self._release(container)
        self._processes.pop(container, None)
        self._groups.pop(container, None)
        self._ended.pop(container, None)

    # The end.

    async def remove_all(self) -> None:
        """Remove all sandboxes of the node with their containers."""
        for each in await self._listed_sandboxes():
            await self.remove_sandbox(each.id)

    async def shutdown(self) -> None:
        await self.remove_all()
        await super().shutdown()

    async def close(self) -> None:
        for container in list(self._pidfds):
            self._release(container)
        await self._looks.close()
        await self.connection.close()
        await super().close()


def _process(pid: int) -> ContainerProcessIds:
    """Return the process of a container and its owner, as the kernel knows it."""
    owners: dict[str, Sequence[int]] = {}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in ("Uid", "Gid", "Groups"):
                owners[name] = [*map(int, value.split())]
    user, group = owners.get("Uid") or (0,), owners.get("Gid") or (0,)
    return ContainerProcessIds(pid, user[0], group[0], owners.get("Groups", ()))
