"""The heartbeats of simulated nodes: leases, and conditions that a silent node has lost."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from kedge.api.coordination_v1.lease import RESOURCE as LEASES
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.client.client import MERGE_PATCH, path_of
from kedge.machinery.clock import Clock, heartbeat_clock
from kedge.machinery.durations import format_micro_time
from kedge.machinery.errors import StatusError
from kedge.simulated_nodes.node_object import LEASES_NAMESPACE, new_lease, reported_status
from kedge.simulated_nodes.portions import portions
from kedge.simulated_nodes.simulated_machine import SimulatedMachine

log = logging.getLogger(__name__)

RENEW_SECONDS: Final = 10.0
"""Seconds between two renewals of a lease, as of a real node."""
PROMPT_NODES: Final = 100
"""So many nodes do that. A renewal takes 0.7 ms of processor time, and a thousand nodes would take
a tenth of a processor."""
CALM_SECONDS: Final = 20.0
"""Seconds between two renewals if there are more nodes."""
CHANCES: Final = 2.5
"""Renewals within the grace period of a node, at least."""
SLOTS: Final = 20
"""Portions of the nodes: one portion is renewed after the other, evenly over that time."""
TOGETHER: Final = 25
"""Requests at a time. Writes that arrive together share a commit of the store."""


class Heartbeats:
    """Renews the leases of all nodes. The owner must `run` it."""

    def __init__(
        self, machines: Mapping[str, SimulatedMachine], clock: Clock, grace: float
    ) -> None:
        """`grace` is the number of seconds after which a node without heartbeat is unreachable."""
        self._machines = machines
        self._grace = grace
        self._clock = clock
        self._pace = heartbeat_clock(clock)

    async def run(self) -> None:
        """Renew until cancelled."""
        due = self._pace.monotonic()
        while True:
            for slot in range(SLOTS):
                await self.renew(sorted(self._machines)[slot::SLOTS])
                # On a busy machine a portion may take longer: the next one does not wait then.
                now = self._pace.monotonic()
                seconds = renewal_seconds(len(self._machines), self._grace) / SLOTS
                due = max(due + seconds, now)
                await self._pace.sleep(due - now)

    async def renew_all(self) -> None:
        """Renew the leases of all nodes now."""
        await self.renew(sorted(self._machines))

    async def renew(self, names: Iterable[str]) -> None:
        """Renew the leases of some nodes."""
        # Without `give_way`: beside thousands of pods that start, each portion would wait for
        # seconds, and a round has forty. Others have their turn while a portion waits for its
        # commit.
        for portion in portions(names, TOGETHER):
            await self._renew_together(portion)

    async def _renew_together(self, names: Sequence[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                if (machine := self._machines.get(name)) is not None:
                    tasks.create_task(self._renew(machine))

    async def _renew(self, machine: SimulatedMachine) -> None:
        try:
            await self._write_lease(machine)
            await self.report(machine)
            machine.is_silent = False
        except (StatusError, OSError) as error:
            if isinstance(error, StatusError) and error.code == HTTPStatus.CONFLICT:
                # Another one has written the node or created the lease: the next renewal knows.
                machine.is_silent = False
                return
            if not machine.is_silent:
                log.warning("lease not renewed node=%s error=%s", machine.name, error)
            machine.is_silent = True

    async def _write_lease(self, machine: SimulatedMachine) -> None:
        now = self._clock.now()
        spec = {"renewTime": format_micro_time(now), "holderIdentity": machine.name}
        path = path_of(LEASES, LEASES_NAMESPACE, machine.name)
        try:
            body = msgspec.json.encode({"spec": spec})
            await machine.client.send("PATCH", path, body=body, content=MERGE_PATCH)
        except StatusError as error:
            if error.code != 404:
                raise
            await machine.client.create(LEASES, new_lease(machine.node, now))

    async def report(self, machine: SimulatedMachine) -> None:
        """Write the status of a node, if anything in it is missing or unknown."""
        node = machine.node
        status = reported_status(node, machine.address, self._clock.now())
        if status != node.status:
            wanted = msgspec.structs.replace(node, status=status)
            changed = await machine.client.update(NODES, wanted, subresource="status")
            machine.node = changed


def renewal_seconds(nodes: int, grace: float) -> float:
    """Return the seconds between two renewals of one lease."""
    usual = RENEW_SECONDS if nodes <= PROMPT_NODES else CALM_SECONDS
    return min(usual, grace / CHANCES)
