"""The client of one instance of a driver."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kedge.deviceplugin import library
from kedge.deviceplugin import messages as plugins
from kedge.deviceplugin import methods as calls
from kedge.dra import messages as m
from kedge.dra.methods import SERVICES, WATCH_HEALTH
from kedge.machinery.clock import Clock
from kedge.node.devices.plugin_channel import PluginChannel, PluginError
from kedge.node.resource_claims.claim_ledger import ClaimError

CALL_SECONDS: Final = 45.0
MOST_DEVICES: Final = 1024
"""Devices of one claim; the API allows fewer."""
MOST_NAMES: Final = 64
"""CDI devices or requests of one device."""
LONGEST_NAME: Final = 1024
_LONGEST_ERROR: Final = 1024


class HealthUnsupported(Exception):
    """The driver does not report the health of its devices."""


class DriverClient(PluginChannel):
    """A connection to a driver, which is restored when the driver restarts at the same socket."""

    # Decoding must not keep other pods waiting.
    largest = 2**20

    def __init__(self, driver: str, path: Path, services: Sequence[str], clock: Clock) -> None:
        """`services` are those that the driver offers, at least one of SERVICES among them."""
        super().__init__(f"DRA driver {driver}", path, clock)
        self.driver = driver
        self.is_connected = False
        self.wants_environment = m.ENVIRONMENT in services
        self._methods = SERVICES[chosen_service(services)]

    async def prepare(
        self, claims: Sequence[m.ClaimReference]
    ) -> Mapping[str, Sequence[m.PreparedDevice]]:
        """Call NodePrepareResources; return the devices by uid of the claim. Raises ClaimError."""
        method = self._methods.prepare
        try:
            answer = await self.call(method, m.ClaimsRequest(claims=claims), CALL_SECONDS)
        except PluginError as error:
            raise ClaimError(f"{method.name}: {error}") from error
        _check(method.name, claims, {uid: each.error for uid, each in answer.claims.items()})
        for claim in claims:
            if not _is_bounded(answer.claims[claim.uid].devices):
                raise ClaimError(
                    f"{method.name} failed for ResourceClaim {claim.name}: "
                    "the driver returned too many devices or too long names"
                )
        return {uid: each.devices for uid, each in answer.claims.items()}

    async def unprepare(self, claims: Sequence[m.ClaimReference]) -> None:
        """Call NodeUnprepareResources. Raises ClaimError."""
        method = self._methods.unprepare
        try:
            answer = await self.call(method, m.ClaimsRequest(claims=claims), CALL_SECONDS)
        except PluginError as error:
            raise ClaimError(f"{method.name}: {error}") from error
        _check(method.name, claims, {uid: each.error for uid, each in answer.claims.items()})

    async def watch_connection(self) -> AsyncIterator[bool]:
        """Yield whether the driver is connected, on each change; keeps trying to connect."""
        ready = library.load().ChannelConnectivity.READY
        while not self.stopped:
            state = self._channel.get_state(try_to_connect=True)
            if self.is_connected != (state is ready):
                self.is_connected = state is ready
                yield self.is_connected
            await self._channel.wait_for_state_change(state)

    async def watch_health(self) -> AsyncIterator[Sequence[m.DeviceHealth]]:
        """Yield the health of all devices on each change (NodeWatchResources). Raises PluginError
        at the end, or HealthUnsupported."""
        grpc = library.load()
        stream = calls.streamer(self._channel, WATCH_HEALTH)(plugins.Empty())
        try:
            async for answer in stream:
                yield answer.devices
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise HealthUnsupported from error
            raise PluginError(library.refusal(error)) from error
        except asyncio.CancelledError as error:
            raise self._cut_off() from error
        finally:
            stream.cancel()


def chosen_service(services: Sequence[str]) -> str:
    """Return the first service of a driver that the agent can use; empty if there is none."""
    return next((each for each in services if each in SERVICES), "")


def _check(call: str, claims: Sequence[m.ClaimReference], errors: Mapping[str, str]) -> None:
    """Check that a response has a success for each claim. Raises ClaimError."""
    names = {each.uid: each.name for each in claims}
    for uid, error in errors.items():
        if uid not in names:
            raise ClaimError(f"{call} returned result for unknown claim UID {uid[:LONGEST_NAME]}")
        if error:
            raise ClaimError(
                f"{call} failed for ResourceClaim {names[uid]}: {error[:_LONGEST_ERROR]}"
            )
    if missing := len(names) - len(errors):
        raise ClaimError(f"{call} skipped {missing} ResourceClaims")


def _is_bounded(devices: Sequence[m.PreparedDevice]) -> bool:
    return len(devices) <= MOST_DEVICES and all(
        len(each.cdi_device_ids) <= MOST_NAMES
        and len(each.request_names) <= MOST_NAMES
        and all(
            len(name) <= LONGEST_NAME
            for name in (
                each.pool_name,
                each.device_name,
                each.share_id or "",
                *each.cdi_device_ids,
                *each.request_names,
            )
        )
        for each in devices
    )
