"""Plugin: the base class of device plugins. Only the list of devices is required."""

import asyncio
import contextlib
import logging
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.deviceplugin import library, methods
from kedge.deviceplugin import messages as m
from kedge.deviceplugin.sockets import reachable
from kedge.machinery.clock import Clock, SystemClock

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""How often a plugin looks whether the kubelet has begun anew."""
_LARGEST = [("grpc.max_receive_message_length", 16 * 2**20)]


class Refused(Exception):
    """A plugin refuses an allocation. The text appears in the events of the pod."""


class Plugin(ABC):
    """A device plugin for one resource.

    Implement `devices`; override other methods as needed. The options tell the kubelet not to call
    methods that are not overridden; if it calls one anyway, the answer changes nothing.
    """

    resource: str = ""
    """The resource name that pods request, such as `example.com/gadget`."""

    def __init__(self, resource: str = "", *, clock: Clock | None = None) -> None:
        self.resource = resource or self.resource
        self._clock = clock or SystemClock()
        self._watchers: set[asyncio.Event] = set()
        self.registered = asyncio.Event()
        """Set while a kubelet knows this plugin."""

    # Methods to override.

    @abstractmethod
    def devices(self) -> Sequence[m.Device]:
        """All devices there are now. Call `changed` when this would answer something else."""

    async def allocate(
        self, ids: Sequence[str], owner: m.Owner | None
    ) -> m.ContainerAllocateResponse:
        """Return the setup of a container for these devices; called once per container."""
        return m.ContainerAllocateResponse()

    async def pre_start(
        self, ids: Sequence[str], env: Mapping[str, str], owner: m.Owner | None
    ) -> None:
        """Make the devices ready; called before every start. Raise Refused to prevent it."""
        return

    async def prefer(
        self, available: Sequence[str], included: Sequence[str], size: int
    ) -> Sequence[str]:
        """Which of the available devices to take, those that must be included among them; none
        if it is all the same."""
        return ()

    async def release(self, ids: Sequence[str], owner: m.Owner | None) -> None:
        """The container that had the devices is gone. May be called more than once for it."""
        return

    def changed(self) -> None:
        """Tell the kubelet of the devices as they are now."""
        for watcher in self._watchers:
            watcher.set()

    # How it lives.

    @property
    def socket(self) -> str:
        """Name of the plugin's own socket."""
        return f"{self.resource.replace('/', '_')}.sock"

    def run(self, directory: str | Path = m.DIRECTORY) -> None:
        """Serve until SIGTERM or SIGINT."""
        asyncio.run(self._run(Path(directory)))

    async def _run(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(self.serve(directory))
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, work.cancel)

    async def serve(self, directory: str | Path = m.DIRECTORY) -> None:
        """Until cancelled: listen, register, and begin anew when the kubelet does."""
        # Loading takes long enough to keep others waiting.
        await asyncio.to_thread(library.load)
        directory = Path(directory)
        while True:
            await self._appearance(directory / m.SOCKET)
            server = await self._listen(directory / self.socket)
            try:
                marks = self._marks(directory)
                if await self._register(directory):
                    self.registered.set()
                    await self._unchanged(directory, marks)
                else:
                    await self._clock.sleep(LOOK_SECONDS)
            finally:
                self.registered.clear()
                await server.stop(0)

    async def _listen(self, path: Path) -> Any:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        grpc = library.load()
        server = grpc.aio.server(options=_LARGEST)
        methods.offer(grpc, server, self._handlers())
        where, held = reachable(path)
        server.add_insecure_port(f"unix:{where}")
        await server.start()
        held.close()
        return server

    def _handlers(self) -> dict[methods.Method[Any, Any], methods.Handler]:
        return {
            methods.OPTIONS: self._options,
            methods.LIST_AND_WATCH: self._watch,
            methods.PREFER: self._prefer,
            methods.ALLOCATE: self._allocate,
            methods.PRE_START: self._pre_start,
            methods.RELEASE: self._release,
        }

    async def _register(self, directory: Path) -> bool:
        grpc = library.load()
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        request = m.RegisterRequest(
            version=m.VERSION,
            endpoint=self.socket,
            resource_name=self.resource,
            options=self.options,
        )
        where, held = reachable(directory / m.SOCKET)
        async with grpc.aio.insecure_channel(f"unix:{where}", options=options) as channel:
            try:
                await methods.caller(channel, methods.REGISTER)(request, timeout=20)
            except grpc.aio.AioRpcError as error:
                log.warning("not registered resource=%s error=%s", self.resource, error.details())
                return False
            finally:
                held.close()
        log.info("registered resource=%s devices=%d", self.resource, len(self.devices()))
        return True

    async def _appearance(self, path: Path) -> None:
        while _mark(path) is None:
            await self._clock.sleep(LOOK_SECONDS)

    async def _unchanged(self, directory: Path, marks: object) -> None:
        """Return when the kubelet's socket is another one, or has removed ours."""
        while self._marks(directory) == marks:
            await self._clock.sleep(LOOK_SECONDS)

    def _marks(self, directory: Path) -> object:
        return _mark(directory / m.SOCKET), _mark(directory / self.socket)

    # Calls of the kubelet.

    @property
    def options(self) -> m.DevicePluginOptions:
        return m.DevicePluginOptions(
            pre_start_required=self._overrides("pre_start"),
            get_preferred_allocation_available=self._overrides("prefer"),
            release_required=self._overrides("release"),
        )

    def _overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(Plugin, name)

    async def _options(self, request: m.Empty, context: Any) -> m.DevicePluginOptions:
        return self.options

    async def _watch(self, request: m.Empty, context: Any) -> AsyncIterator[m.ListAndWatchResponse]:
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while True:
                changed.clear()
                yield m.ListAndWatchResponse(devices=list(self.devices()))
                await changed.wait()
        finally:
            self._watchers.discard(changed)

    async def _prefer(
        self, request: m.PreferredAllocationRequest, context: Any
    ) -> m.PreferredAllocationResponse:
        chosen = []
        async with _refusing(context):
            for each in request.container_requests:
                ids = await self.prefer(
                    each.available_device_ids, each.must_include_device_ids, each.allocation_size
                )
                chosen.append(m.ContainerPreferredAllocationResponse(device_ids=list(ids)))
        return m.PreferredAllocationResponse(container_responses=chosen)

    async def _allocate(self, request: m.AllocateRequest, context: Any) -> m.AllocateResponse:
        made = []
        async with _refusing(context):
            known = {device.id for device in self.devices()}
            for each in request.container_requests:
                if strange := sorted(set(each.devices_ids) - known):
                    raise Refused(f"there is no device {', '.join(strange)}")
                made.append(await self.allocate(each.devices_ids, each.owner))
        return m.AllocateResponse(container_responses=made)

    async def _pre_start(self, request: m.PreStartContainerRequest, context: Any) -> m.Empty:
        if self.options.pre_start_required:
            async with _refusing(context):
                await self.pre_start(request.devices_ids, request.env, request.owner)
        return m.Empty()

    async def _release(self, request: m.ReleaseContainerRequest, context: Any) -> m.Empty:
        if self.options.release_required:
            async with _refusing(context):
                await self.release(request.devices_ids, request.owner)
        return m.Empty()


@contextlib.asynccontextmanager
async def _refusing(context: Any) -> AsyncIterator[None]:
    """Errors become the answer of the call, without the words that Python puts before them."""
    codes = library.load().StatusCode
    try:
        yield
    except Refused as error:
        await context.abort(codes.FAILED_PRECONDITION, str(error))
    except Exception as error:
        log.exception("a call failed")
        await context.abort(codes.UNKNOWN, str(error) or type(error).__name__)


def _mark(path: Path) -> tuple[int, int] | None:
    """Which file stands under a name."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns
