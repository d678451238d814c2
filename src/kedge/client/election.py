"""Election: of several servers one does the work, and says so in a Lease."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.coordination_v1.lease import RESOURCE, Lease, LeaseSpec
from kedge.api.model import ObjectMeta
from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.machinery.durations import format_micro_time
from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
LASTS: Final = 15.0
"""Seconds for which a lease is respected after its holder was last heard of."""
RENEWED: Final = 5.0
"""Seconds between renewals: two may fail before anybody takes over."""
GIVEN_UP: Final = 10.0
"""Seconds without a renewal after which the holder stops working: others will begin soon."""
PAUSE: Final = 2.0
"""Seconds between two checks of a lease that another holds, or that cannot be renewed."""


class LeaseObservation(msgspec.Struct, frozen=True):
    """A lease as it was found, and when, by the finder's own clock: clocks of others may differ."""

    lease: Lease
    at: float

    def is_free_for(self, identity: str, now: float) -> bool:
        spec = self.lease.spec
        if not spec.holderIdentity or spec.holderIdentity == identity:
            return True
        return now >= self.at + (spec.leaseDurationSeconds or LASTS)


def taken(lease: Lease, identity: str, at: str) -> Lease:
    """The lease in the hands of a holder, new or old."""
    spec = lease.spec
    same = spec.holderIdentity == identity
    return replace(
        lease,
        spec=replace(
            spec,
            holderIdentity=identity,
            leaseDurationSeconds=int(LASTS),
            acquireTime=spec.acquireTime if same and spec.acquireTime else at,
            renewTime=at,
            leaseTransitions=0
            if spec.leaseTransitions is None
            else spec.leaseTransitions + (not same),
        ),
    )


class Election:
    """One who stands for one office. An identity that comes back finds its lease still its own."""

    def __init__(self, client: Client, clock: Clock, office: str, identity: str) -> None:
        self._client = client
        self._clock = clock
        self._office = office
        self._identity = identity
        self._seen: LeaseObservation | None = None
        self._renewed = 0.0

    def failure(self) -> str:
        """Return why the work is not done; empty while another server leads."""
        holder = self._seen.lease.spec.holderIdentity if self._seen else ""
        return "" if holder and holder != self._identity else "waiting for the lease"

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work whenever elected, and only then; for ever."""
        while True:
            while not await self._try():
                await self._clock.sleep(PAUSE)
            log.info("leading office=%s identity=%s", self._office, self._identity)
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(work())
                await self._hold()
                working.cancel()
            log.warning("no longer leading office=%s identity=%s", self._office, self._identity)

    async def resign(self) -> None:
        """Let others begin at once."""
        held = self._seen.lease if self._seen else None
        if held is None or held.spec.holderIdentity != self._identity:
            return
        spec = replace(held.spec, holderIdentity="", leaseDurationSeconds=1)
        try:
            await self._client.update(RESOURCE, replace(held, spec=spec))
        except (StatusError, OSError) as error:
            log.debug("lease not given back office=%s error=%r", self._office, str(error))

    async def _hold(self) -> None:
        """Renew for as long as it succeeds."""
        pause = RENEWED
        while self._clock.monotonic() - self._renewed < GIVEN_UP:
            await self._clock.sleep(pause)
            pause = RENEWED if await self._try() else PAUSE

    async def _try(self) -> bool:
        """Acquire or renew the lease; False if another holds it, or no server answers."""
        now = self._clock.monotonic()
        try:
            held = await self._write()
        except (StatusError, OSError) as error:
            log.debug("lease not written office=%s error=%r", self._office, str(error))
            await self._look()
            return False
        if held:
            self._renewed = now
        return held

    async def _write(self) -> bool:
        at = format_micro_time(self._clock.now())
        if not self._is_free():
            await self._look()
        if self._seen is None:
            self._seen = await self._create(at)
        elif not self._is_free():
            return False
        else:
            lease = await self._client.update(RESOURCE, taken(self._seen.lease, self._identity, at))
            self._seen = LeaseObservation(lease, self._clock.monotonic())
        return True

    def _is_free(self) -> bool:
        seen = self._seen
        return seen is not None and seen.is_free_for(self._identity, self._clock.monotonic())

    async def _create(self, at: str) -> LeaseObservation:
        empty = Lease(metadata=ObjectMeta(name=self._office, namespace=NAMESPACE), spec=LeaseSpec())
        made = await self._client.create(RESOURCE, taken(empty, self._identity, at))
        return LeaseObservation(made, self._clock.monotonic())

    async def _look(self) -> None:
        """See the lease as it is now; one that was not renewed is as old as it was."""
        try:
            lease = await self._client.get(RESOURCE, self._office, NAMESPACE)
        except StatusError as error:
            if error.code == 404:
                self._seen = None
            return
        except OSError:
            return
        seen = self._seen.lease.metadata.resourceVersion if self._seen else ""
        if lease.metadata.resourceVersion != seen:
            self._seen = LeaseObservation(lease, self._clock.monotonic())
