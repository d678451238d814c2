"""The client of one device plugin."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from kedge.deviceplugin import library, methods
from kedge.deviceplugin import messages as m
from kedge.deviceplugin.sockets import reachable
from kedge.machinery.clock import Clock
from kedge.node.devices.ledger import DeviceChoice, DeviceOwner, PluginDevice
from kedge.node.pod.timeouts import with_timeout

DIAL_SECONDS: Final = 10.0
PRE_START_SECONDS: Final = 30.0
RELEASE_SECONDS: Final = 30.0
_LARGEST: Final = 16 * 2**20

Q = TypeVar("Q")
A = TypeVar("A")


class PluginError(Exception):
    """A call to a plugin failed; the text is that of Go's gRPC library."""


class PluginClient:
    """A connection to a plugin; a lost connection is not restored."""

    def __init__(self, resource: str, path: Path, clock: Clock) -> None:
        self.resource = resource
        self.path = path
        self.options = m.DevicePluginOptions()
        self.stopped = False
        """Whether the connection is lost, or another plugin has replaced this one."""
        self._clock = clock
        self._where, self._held = reachable(path)
        self._channel: Any = None

    async def dial(self, seconds: float = DIAL_SECONDS) -> None:
        """Connect. Raises PluginError."""
        self._channel = library.load().aio.insecure_channel(
            f"unix:{self._where}",
            options=[
                # Some servers reject a path as the authority.
                ("grpc.default_authority", "localhost"),
                ("grpc.enable_http_proxy", 0),
                # Otherwise a plugin that restarts at the same path would wait for the back-off of
                # the old channel.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 500),
                ("grpc.max_receive_message_length", _LARGEST),
            ],
        )
        try:
            await with_timeout(self._clock, seconds, self._channel.channel_ready())
        except TimeoutError:
            await self.close()
            raise PluginError(
                "failed to dial device plugin: failed to create device plugin client: "
                "context deadline exceeded"
            ) from None

    async def ask_options(self) -> None:
        """Call GetDevicePluginOptions. Raises PluginError."""
        self.options = await self._call(methods.OPTIONS, m.Empty(), DIAL_SECONDS)

    async def watch(self) -> AsyncIterator[dict[str, PluginDevice]]:
        """Yield the list of devices on each change (ListAndWatch). Raises PluginError at the
        end."""
        grpc = library.load()
        stream = methods.streamer(self._channel, methods.LIST_AND_WATCH)(m.Empty())
        try:
            async for answer in stream:
                yield {device.id: _plugin_device(device) for device in answer.devices}
        except grpc.aio.AioRpcError as error:
            raise PluginError(library.refusal(error)) from error
        except asyncio.CancelledError as error:
            raise self._cut_off() from error
        finally:
            stream.cancel()

    async def prefer(self, choice: DeviceChoice) -> Sequence[str]:
        """Call GetPreferredAllocation. Raises PluginError."""
        asked = m.ContainerPreferredAllocationRequest(
            available_device_ids=[*choice.again, *choice.free],
            must_include_device_ids=choice.again,
            allocation_size=choice.number,
        )
        request = m.PreferredAllocationRequest(container_requests=[asked])
        try:
            answer = await self._call(methods.PREFER, request)
        except PluginError as error:
            text = f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            raise PluginError(text) from error
        return answer.container_responses[0].device_ids if answer.container_responses else ()

    async def allocate(self, ids: Sequence[str], owner: DeviceOwner) -> m.ContainerAllocateResponse:
        """Call Allocate. Raises PluginError."""
        asked = m.ContainerAllocateRequest(devices_ids=ids, owner=_owner_message(owner))
        answer = await self._call(methods.ALLOCATE, m.AllocateRequest(container_requests=[asked]))
        if not answer.container_responses:
            raise PluginError(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def pre_start(
        self, ids: Sequence[str], env: Mapping[str, str], owner: DeviceOwner
    ) -> None:
        """Call PreStartContainer. Raises PluginError."""
        request = m.PreStartContainerRequest(devices_ids=ids, env=env, owner=_owner_message(owner))
        await self._call(methods.PRE_START, request, PRE_START_SECONDS)

    async def release(self, ids: Sequence[str], owner: DeviceOwner) -> None:
        """Notify the plugin of a release. Raises PluginError."""
        request = m.ReleaseContainerRequest(devices_ids=ids, owner=_owner_message(owner))
        await self._call(methods.RELEASE, request, RELEASE_SECONDS)

    async def info(self) -> m.PluginInfo:
        """Call GetInfo of the plugin watcher. Raises PluginError."""
        return await self._call(methods.GET_INFO, m.Empty(), DIAL_SECONDS)

    async def notify(self, error: str) -> None:
        """Call NotifyRegistrationStatus. Raises PluginError."""
        status = m.RegistrationStatus(plugin_registered=not error, error=error)
        await self._call(methods.NOTIFY, status, DIAL_SECONDS)

    async def close(self) -> None:
        self.stopped = True
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        self._held.close()

    async def _call(
        self, method: methods.Method[Q, A], request: Q, seconds: float | None = None
    ) -> A:
        if self._channel is None or self.stopped:
            raise PluginError(f"endpoint of {self.resource} has been stopped")
        grpc = library.load()
        try:
            call = methods.caller(self._channel, method)(request, timeout=seconds)
            if seconds is None:
                return await call
            return await with_timeout(self._clock, seconds, call)
        except TimeoutError:
            text = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
            raise PluginError(text) from None
        except grpc.aio.AioRpcError as error:
            raise PluginError(_error_text(error)) from error
        except grpc.aio.UsageError as error:
            raise PluginError(str(error)) from error
        except asyncio.CancelledError as error:
            raise self._cut_off() from error

    def _cut_off(self) -> BaseException:
        """Convert the cancellation by a channel that is closed meanwhile to a PluginError."""
        task = asyncio.current_task()
        if not self.stopped or (task is not None and task.cancelling()):
            return asyncio.CancelledError()
        return PluginError("rpc error: code = Canceled desc = the connection was closed")


def _error_text(error: Any) -> str:
    text = library.refusal(error)
    if text.startswith("rpc error: code = DeadlineExceeded"):
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    return text


def _plugin_device(device: m.Device) -> PluginDevice:
    places = device.topology.nodes if device.topology is not None else ()
    return PluginDevice(device.health == m.HEALTHY, tuple(place.id for place in places))


def _owner_message(owner: DeviceOwner) -> m.Owner:
    return m.Owner(
        pod_name=owner.pod_name,
        pod_namespace=owner.namespace,
        pod_uid=owner.pod,
        container_name=owner.container,
    )
