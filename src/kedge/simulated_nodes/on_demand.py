"""Starts the simulation when the first node asks for it: most clusters never load its modules."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import SIMULATED, SIMULATED_VALUE, Node
from kedge.client.client import Client
from kedge.client.informer import Informer
from kedge.client.object_views import ObjectViews
from kedge.client.view import objects
from kedge.machinery.clock import Clock, machine_clock

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 1.0
"""Seconds after which a simulation that failed begins again."""
SELECTOR: Final = f"{SIMULATED}={SIMULATED_VALUE}"


async def simulate(
    client: Client,
    client_of: Callable[[str], Client],
    clock: Clock,
    grace: float,
    views: ObjectViews | None = None,
) -> None:
    """Simulate nodes until cancelled. `client` acts as an administrator, those of `client_of` act
    as the node of that name. `grace` is the number of seconds after which a node without heartbeat
    is unreachable. `views` share decoded objects with other informers of the process."""
    await _first_node(client, clock)
    from kedge.simulated_nodes.simulator import NodeSimulator

    while True:
        try:
            await NodeSimulator(client, client_of, clock, grace, views or ObjectViews()).run()
        except Exception:
            # The controllers of the same process go on without it.
            log.exception("simulation of nodes failed; it begins again")
        await machine_clock(clock).sleep(PAUSE_SECONDS)


async def _first_node(client: Client, clock: Clock) -> None:
    """Return when there is a node to simulate."""
    found = asyncio.Event()
    informer = Informer(client, objects(NODES), _FirstNode(found), clock, labels=SELECTOR)
    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(informer.run())
        await found.wait()
        watch.cancel()


class _FirstNode:
    """Fulfils kedge.client.informer.Receiver."""

    def __init__(self, found: asyncio.Event) -> None:
        self._found = found

    def replace(self, objects: Iterable[Node]) -> None:
        if any(True for _ in objects):
            self._found.set()

    def put(self, obj: Node) -> None:
        self._found.set()

    def remove(self, obj: Node) -> None:
        pass
