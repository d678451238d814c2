"""Election: of several servers one does the work, and says so in a Lease."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kedge.api.coordination_v1.lease import RESOURCE, Lease, LeaseSpec
from kedge.api.model import ObjectMeta
from kedge.client.client import Client
from kedge.client.transport import Call, Handler, LocalResponse
from kedge.machinery.clock import Clock, lease_clock
from kedge.machinery.durations import format_micro_time
from kedge.machinery.errors import StatusError, unavailable
from kedge.machinery.write_guard import WriteGuard, guarded, guarded_by

log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"

BeginTerm = Callable[[str, int], Awaitable[WriteGuard | None]]


async def unguarded_term(office: str, lease_revision: int) -> WriteGuard | None:
    """Begin a term without a guard: no other server can lead."""
    return None


class ElectionTimes(msgspec.Struct, frozen=True):
    """How long the steps of an election take, in seconds."""

    lasts: int
    """For how long a lease is respected after its holder was last heard of."""
    renewed: float
    """Between renewals: two may fail before anybody takes over."""
    given_up: float
    """Without a renewal, after which the holder stops working: others will begin soon."""
    pause: float
    """Between two checks of a lease that another holds, or that cannot be renewed."""


ALONE: Final = ElectionTimes(lasts=15, renewed=5.0, given_up=10.0, pause=2.0)
"""For a server without others: no other one waits for the office, and renewals are writes."""
CONTESTED: Final = ElectionTimes(lasts=4, renewed=1.0, given_up=3.0, pause=0.2)
"""For one of several servers: after the death of the leader another one leads in less than 5 s."""
LASTS: Final = ALONE.lasts
RENEWED: Final = ALONE.renewed
GIVEN_UP: Final = ALONE.given_up
PAUSE: Final = ALONE.pause


class LeaseObservation(msgspec.Struct, frozen=True):
    """A lease as it was found, and when, by the finder's own clock: clocks of others may differ."""

    lease: Lease
    at: float

    def is_free_for(self, identity: str, now: float) -> bool:
        spec = self.lease.spec
        if not spec.holderIdentity or spec.holderIdentity == identity:
            return True
        return now >= self.at + (spec.leaseDurationSeconds or LASTS)


def taken(lease: Lease, identity: str, at: str, lasts: int = ALONE.lasts) -> Lease:
    """The lease in the hands of a holder, new or old."""
    spec = lease.spec
    same = spec.holderIdentity == identity
    return replace(
        lease,
        spec=replace(
            spec,
            holderIdentity=identity,
            leaseDurationSeconds=lasts,
            acquireTime=spec.acquireTime if same and spec.acquireTime else at,
            renewTime=at,
            leaseTransitions=0
            if spec.leaseTransitions is None
            else spec.leaseTransitions + (not same),
        ),
    )


class Election:
    """One who stands for one office. An identity that comes back finds its lease still its own."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        office: str,
        identity: str,
        times: Callable[[], ElectionTimes] = lambda: ALONE,
        begin_term: BeginTerm = unguarded_term,
    ) -> None:
        """`times` may change while others come and go. `begin_term` is called by a new leader with
        the revision of its Lease, and returns what guards its writes; raises StatusError."""
        self._client = client
        self._clock = clock
        self._machine = lease_clock(clock)
        """How long a lease lasts is a matter of the machine's time: a cluster for tests may skip an
        hour, in which no other server could have begun to lead. While the machine is suspended, one
        can."""
        self._office = office
        self._identity = identity
        self._seen: LeaseObservation | None = None
        self._renewed = 0.0
        self._times = times
        self._begin_term = begin_term
        self.term: WriteGuard | None = None
        """The guard of the writes of this server, if it leads."""

    def is_leading(self) -> bool:
        """Return whether no other server can have begun to lead: the lease was renewed of late. A
        process that was stopped for a while learns from this that its time is over."""
        seen = self._seen
        if seen is None or seen.lease.spec.holderIdentity != self._identity:
            return False
        lasts = seen.lease.spec.leaseDurationSeconds or ALONE.lasts
        return self._machine.monotonic() < self._renewed + lasts

    def failure(self) -> str:
        """Return why the work is not done; empty while another server leads."""
        holder = self._seen.lease.spec.holderIdentity if self._seen else ""
        return "" if holder and holder != self._identity else "waiting for the lease"

    async def lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work whenever elected, and only then; for ever."""
        while True:
            while not (await self._try() and await self._begin()):
                await self._machine.sleep(self._times().pause)
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
        times = self._times()
        pause = times.renewed
        while not self._has_ended() and self._machine.monotonic() - self._renewed < times.given_up:
            await self._machine.sleep(pause)
            # Until the lease is renewed, the times hold under which it was renewed before.
            left = self._renewed + times.given_up - self._machine.monotonic()
            renewing = self._times()
            if await self._try_within(max(left, 0.0)):
                times, pause = renewing, renewing.renewed
            else:
                pause = renewing.pause

    async def _begin(self) -> bool:
        """Begin a term; False if another server has acquired the lease since, or none answers."""
        assert self._seen is not None
        revision = int(self._seen.lease.metadata.resourceVersion)
        try:
            self.term = await self._begin_term(self._office, revision)
        except (StatusError, OSError) as error:
            log.debug("term not begun office=%s error=%r", self._office, str(error))
            return False
        return True

    def _has_ended(self) -> bool:
        """Whether a write was refused because another server has begun its term."""
        return self.term is not None and self.term.is_lost

    async def _try_within(self, seconds: float) -> bool:
        """Renew the lease; False if that takes too long, so that the work ends in time."""
        async with asyncio.TaskGroup() as tasks:
            trying = tasks.create_task(self._try())
            timer = tasks.create_task(self._machine.sleep(seconds))
            await asyncio.wait((trying, timer), return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            if not trying.done():
                trying.cancel()
                return False
            return trying.result()

    async def _try(self) -> bool:
        """Acquire or renew the lease; False if another holds it, or no server answers."""
        now = self._machine.monotonic()
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
            wanted = taken(self._seen.lease, self._identity, at, self._times().lasts)
            lease = await self._client.update(RESOURCE, wanted)
            self._seen = LeaseObservation(lease, self._machine.monotonic())
        return True

    def _is_free(self) -> bool:
        seen = self._seen
        return seen is not None and seen.is_free_for(self._identity, self._machine.monotonic())

    async def _create(self, at: str) -> LeaseObservation:
        empty = Lease(metadata=ObjectMeta(name=self._office, namespace=NAMESPACE), spec=LeaseSpec())
        wanted = taken(empty, self._identity, at, self._times().lasts)
        made = await self._client.create(RESOURCE, wanted)
        return LeaseObservation(made, self._machine.monotonic())

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
            self._seen = LeaseObservation(lease, self._machine.monotonic())


def while_leading(election: Election, handler: Handler) -> Handler:
    """Return a handler that refuses to write once another server may lead. The work of a leader
    that lost its lease is cancelled, a moment later. The store refuses the
    writes that it has sent by then."""

    def handle(call: Call) -> LocalResponse | Awaitable[LocalResponse]:
        if call.method == "GET":
            return handler(call)
        if not election.is_leading():
            raise unavailable("this server leads no longer")
        with guarded_by(election.term):
            answer = handler(call)
        return guarded(election.term, answer) if isinstance(answer, Awaitable) else answer

    return handle
