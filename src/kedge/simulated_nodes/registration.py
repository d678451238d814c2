"""Registers the nodes that `--simulated-nodes` asks for."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kedge.api.builtin.service_networks import SIMULATED_NETWORK
from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node, Taint
from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.machinery.quantity import Quantity
from kedge.simulated_nodes.node_object import new_node, reported_status
from kedge.simulated_nodes.portions import portions

TOGETHER: Final = 25
"""Nodes that are created at a time. Writes that arrive together share a commit of the store."""


async def register(
    client: Client,
    clock: Clock,
    count: int,
    *,
    resources: Mapping[str, Quantity],
    taints: Sequence[Taint],
) -> None:
    """Create so many nodes, unless they exist; raises StatusError.

    A node that exists may belong to an earlier process of the server, and its pods run on.
    """
    for numbers in portions(range(1, count + 1), TOGETHER):
        async with asyncio.TaskGroup() as tasks:
            for number in numbers:
                node = new_node(number, resources, taints)
                status = reported_status(node, str(SIMULATED_NETWORK[number]), clock.now())
                tasks.create_task(_create(client, replace(node, status=status)))
        await clock.give_way()


async def _create(client: Client, node: Node) -> None:
    try:
        await client.create(NODES, node)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
