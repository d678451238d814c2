"""Driver: the base class of drivers. The devices and the preparation of claims are required."""

import asyncio
import contextlib
import logging
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from kedge.api.resource_v1 import resource_claim
from kedge.api.resource_v1.resource_slice_types import Device
from kedge.client.client import Client
from kedge.deviceplugin import library
from kedge.deviceplugin import messages as plugins
from kedge.deviceplugin import methods as calls
from kedge.deviceplugin.plugin import Refused
from kedge.deviceplugin.sockets import reachable
from kedge.dra import messages as m
from kedge.dra.allocated_claim import AllocatedClaim, ClaimNotReady, allocated_claim
from kedge.dra.cdi_spec import CdiSpecs
from kedge.dra.cluster_access import cluster_client
from kedge.dra.methods import SERVICES, WATCH_HEALTH
from kedge.dra.slices import SlicePublisher
from kedge.machinery.clock import Clock, SystemClock
from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often a driver looks whether its sockets are still there."""
_LARGEST: Final = [("grpc.max_receive_message_length", 16 * 2**20)]


class Driver(ABC):
    """A driver for the devices of one node.

    Implement `devices` and `prepare`; override other methods as needed. Calls of `prepare` and
    `unprepare` never overlap. Both must be idempotent: a kubelet that restarts calls again.
    """

    name: str = ""
    """The name of the driver, such as `gadget.example.com`."""
    wants_environment: bool = False
    """Whether claims to prepare have the containers that use them, with their environment."""

    def __init__(
        self,
        name: str = "",
        *,
        node: str = "",
        client: Client | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`node` is the node's name; otherwise the variable NODE_NAME is. Without a client the
        driver uses its pod's service account, or the kubeconfig."""
        self.name = name or self.name
        self.node = node or os.environ.get("NODE_NAME", "")
        self._client = client
        self._clock = clock or SystemClock()
        self._turn = asyncio.Lock()
        self._publisher: SlicePublisher | None = None
        self._health_watchers: set[asyncio.Event] = set()
        self.cdi = CdiSpecs(Path(m.CDI), self.name)
        """Writes the CDI specs of claims."""
        self.registered = asyncio.Event()
        """Set while a kubelet knows this driver."""

    # Methods to override.

    @abstractmethod
    def devices(self) -> Sequence[Device]:
        """Return all devices of the node. Call `changed` when this would return others."""

    @abstractmethod
    async def prepare(self, claim: AllocatedClaim) -> Sequence[m.PreparedDevice]:
        """Make the devices of a claim ready, and return them with their CDI devices. Raise Refused
        to prevent the start of the pod; the call is retried."""

    async def unprepare(self, claim: m.ClaimReference) -> None:
        """Undo `prepare`. The claim may be unknown, and its object may be deleted already."""
        self.cdi.remove(claim.uid)

    def health(self) -> Sequence[m.DeviceHealth]:
        """Return the health of all devices. Call `changed` when this would return another."""
        return ()

    def changed(self) -> None:
        """Publish devices and health as they are now."""
        if self._publisher is not None:
            self._publisher.wake()
        for watcher in self._health_watchers:
            watcher.set()

    # How it lives.

    def run(self, directory: str | Path = m.KUBELET_DIRECTORY) -> None:
        """Serve until SIGTERM or SIGINT."""
        asyncio.run(self._run(Path(directory)))

    async def _run(self, directory: Path) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(self.serve(directory))
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, work.cancel)

    async def serve(self, directory: str | Path = m.KUBELET_DIRECTORY) -> None:
        """Publish the devices and serve the kubelet of a directory, until cancelled."""
        # Loading takes long enough to keep others waiting.
        await asyncio.to_thread(library.load)
        if self._client is None:
            self._client = cluster_client(f"{self.name}/kedge.dra")
        places = Path(directory)
        self.cdi = CdiSpecs(cdi_directory(places), self.name)
        self._publisher = SlicePublisher(
            self._client, self.name, self.node, self.devices, self._clock
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publisher.run())
            tasks.create_task(self._serve(places))

    async def _serve(self, directory: Path) -> None:
        registration = directory / m.REGISTRY / f"{self.name}-reg.sock"
        endpoint = directory / m.PLUGINS / self.name / "dra.sock"
        while True:
            await self._until(registration.parent.is_dir)
            endpoint.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            async with (
                _listening(endpoint, self._handlers()),
                _listening(registration, self._registration(endpoint)),
            ):
                log.info("driver listens driver=%s socket=%s", self.name, registration)
                await self._until(lambda: not (registration.exists() and endpoint.exists()))
            self.registered.clear()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._clock.sleep(LOOK_SECONDS)

    # Registration.

    def _registration(self, endpoint: Path) -> dict[calls.Method[Any, Any], calls.Handler]:
        async def info(request: plugins.Empty, context: Any) -> plugins.PluginInfo:
            return plugins.PluginInfo(
                type=m.DRIVER_TYPE,
                name=self.name,
                endpoint=str(endpoint),
                supported_versions=self._services(),
            )

        return {calls.GET_INFO: info, calls.NOTIFY: self._notified}

    def _services(self) -> list[str]:
        reports = type(self).health is not Driver.health
        health = [m.HEALTH] if reports else []
        return [*SERVICES, *health, *([m.ENVIRONMENT] if self.wants_environment else [])]

    async def _notified(self, status: plugins.RegistrationStatus, context: Any) -> plugins.Empty:
        if status.plugin_registered:
            log.info("registered driver=%s", self.name)
            self.registered.set()
        else:
            log.warning("not registered driver=%s error=%s", self.name, status.error)
            self.registered.clear()
        return plugins.Empty()

    # Calls of the kubelet.

    def _handlers(self) -> dict[calls.Method[Any, Any], calls.Handler]:
        found: dict[calls.Method[Any, Any], calls.Handler] = {WATCH_HEALTH: self._watch_health}
        for methods in SERVICES.values():
            found |= {methods.prepare: self._prepare, methods.unprepare: self._unprepare}
        if m.HEALTH not in self._services():
            del found[WATCH_HEALTH]
        return found

    async def _prepare(self, request: m.ClaimsRequest, context: Any) -> m.PrepareResponse:
        found: dict[str, m.PrepareResult] = {}
        async with self._turn:
            for claim in request.claims:
                found[claim.uid] = await self._prepared(claim)
        return m.PrepareResponse(claims=found)

    async def _prepared(self, claim: m.ClaimReference) -> m.PrepareResult:
        try:
            allocated = await self._allocated(claim)
            found = await self.prepare(allocated)
            return m.PrepareResult(devices=[_by_request(each) for each in found])
        except (Refused, ClaimNotReady) as error:
            return m.PrepareResult(error=str(error))
        except (StatusError, OSError) as error:
            return m.PrepareResult(error=f"retrieve claim {claim.namespace}/{claim.name}: {error}")
        except Exception as error:
            log.exception("prepare failed claim=%s/%s", claim.namespace, claim.name)
            return m.PrepareResult(error=str(error) or type(error).__name__)

    async def _allocated(self, claim: m.ClaimReference) -> AllocatedClaim:
        assert self._client is not None
        found = await self._client.get(resource_claim.RESOURCE, claim.name, claim.namespace)
        return allocated_claim(found, self.name, claim.uid, claim.containers)

    async def _unprepare(self, request: m.ClaimsRequest, context: Any) -> m.UnprepareResponse:
        found: Mapping[str, m.UnprepareResult] = {}
        async with self._turn:
            found = {each.uid: await self._unprepared(each) for each in request.claims}
        return m.UnprepareResponse(claims=found)

    async def _unprepared(self, claim: m.ClaimReference) -> m.UnprepareResult:
        try:
            await self.unprepare(claim)
        except Refused as error:
            return m.UnprepareResult(error=str(error))
        except Exception as error:
            log.exception("unprepare failed claim=%s/%s", claim.namespace, claim.name)
            return m.UnprepareResult(error=str(error) or type(error).__name__)
        return m.UnprepareResult()

    async def _watch_health(
        self, request: plugins.Empty, context: Any
    ) -> AsyncIterator[m.HealthResponse]:
        changed = asyncio.Event()
        self._health_watchers.add(changed)
        try:
            while True:
                changed.clear()
                report = list(self.health())
                yield m.HealthResponse(devices=report)
                await self._rest(changed, report)
        finally:
            self._health_watchers.discard(changed)

    async def _rest(self, changed: asyncio.Event, report: Sequence[m.DeviceHealth]) -> None:
        """Wait for a change, or until a report must be repeated to stay valid."""
        seconds = min((each.health_check_timeout_seconds or 30 for each in report), default=30)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 2) / 2):
                await changed.wait()


def _by_request(device: m.PreparedDevice) -> m.PreparedDevice:
    """Return a device with the names of requests alone: kubelets do not know the alternatives."""
    names = [each.partition("/")[0] for each in device.request_names]
    return replace(device, request_names=names)


def cdi_directory(kubelet: Path) -> Path:
    """Return the directory for CDI specs: the machine's beside the kubelet's own directory, the
    node's own otherwise."""
    return Path(m.CDI) if kubelet == Path(m.KUBELET_DIRECTORY) else kubelet / m.OWN_CDI


@contextlib.asynccontextmanager
async def _listening(
    path: Path, handlers: dict[calls.Method[Any, Any], calls.Handler]
) -> AsyncIterator[None]:
    """Serve methods at a socket, which replaces one that a dead process left."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    grpc = library.load()
    server = grpc.aio.server(options=_LARGEST)
    calls.offer(grpc, server, handlers)
    where, held = reachable(path)
    server.add_insecure_port(f"unix:{where}")
    try:
        await server.start()
        yield
    finally:
        await server.stop(0)
        held.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
