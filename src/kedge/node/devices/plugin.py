"""The client of one device plugin."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kedge.deviceplugin import library, methods
from kedge.deviceplugin import messages as m
from kedge.machinery.clock import Clock
from kedge.node.devices.ledger import DeviceChoice, DeviceOwner, PluginDevice
from kedge.node.devices.plugin_channel import DIAL_SECONDS, PluginChannel, PluginError

PRE_START_SECONDS: Final = 30.0
RELEASE_SECONDS: Final = 30.0


class PluginClient(PluginChannel):
    """A connection to a device plugin; a lost connection is not restored."""

    def __init__(self, resource: str, path: Path, clock: Clock) -> None:
        super().__init__(resource, path, clock)
        self.resource = resource
        self.options = m.DevicePluginOptions()

    async def ask_options(self) -> None:
        """Call GetDevicePluginOptions. Raises PluginError."""
        self.options = await self.call(methods.OPTIONS, m.Empty(), DIAL_SECONDS)

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
            answer = await self.call(methods.PREFER, request)
        except PluginError as error:
            text = f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            raise PluginError(text) from error
        return answer.container_responses[0].device_ids if answer.container_responses else ()

    async def allocate(self, ids: Sequence[str], owner: DeviceOwner) -> m.ContainerAllocateResponse:
        """Call Allocate. Raises PluginError."""
        asked = m.ContainerAllocateRequest(devices_ids=ids, owner=_owner_message(owner))
        answer = await self.call(methods.ALLOCATE, m.AllocateRequest(container_requests=[asked]))
        if not answer.container_responses:
            raise PluginError(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def pre_start(
        self, ids: Sequence[str], env: Mapping[str, str], owner: DeviceOwner
    ) -> None:
        """Call PreStartContainer. Raises PluginError."""
        request = m.PreStartContainerRequest(devices_ids=ids, env=env, owner=_owner_message(owner))
        await self.call(methods.PRE_START, request, PRE_START_SECONDS)

    async def release(self, ids: Sequence[str], owner: DeviceOwner) -> None:
        """Notify the plugin of a release. Raises PluginError."""
        request = m.ReleaseContainerRequest(devices_ids=ids, owner=_owner_message(owner))
        await self.call(methods.RELEASE, request, RELEASE_SECONDS)


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
