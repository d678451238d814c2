"""The pod network of a node: no other node of the machine and none of the cluster has the same.

The node reserves a network on its machine and proposes it to the server in `spec.podCIDR`. The
server refuses a network that another node has; the node then takes the next one.
"""

import logging
from collections.abc import Callable, Collection
from ipaddress import IPv4Network
from typing import Final, Protocol

from msgspec.structs import replace

from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import Node, NodeStatus
from kedge.client.client import Client
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0


class ReservedNetwork(Protocol):
    """A network that is reserved on this machine (kedge.node.network.bridge)."""

    network: IPv4Network

    def prefer(self, network: IPv4Network) -> None: ...

    def reserve(self, avoided: Collection[IPv4Network] = ()) -> None: ...

    def release(self) -> bool: ...


class PodNetworkClaim:
    """Claims the pod network of one node."""

    def __init__(self, client: Client, clock: Clock, bridge: ReservedNetwork) -> None:
        self._client = client
        self._clock = clock
        self._bridge = bridge

    async def claim(self, describe: Callable[[], Node]) -> Node:
        """Reserve a network and return the Node that has it, once the server agrees. `describe`
        returns the Node with the reserved network. A Node that has a network keeps it."""
        logged = ""
        while True:
            try:
                return await self._attempt(describe)
            except (StatusError, OSError) as error:
                if str(error) != logged:
                    log.warning("pod network not claimed error=%s; retrying", error)
                logged = str(error)
                await self._clock.sleep(RETRY_SECONDS)

    async def _attempt(self, describe: Callable[[], Node]) -> Node:
        found = await self._found(describe().metadata.name)
        if found is not None and found.spec.podCIDR:
            self._keep(found.spec.podCIDR)
            return found
        taken: list[IPv4Network] = []
        while True:
            self._bridge.reserve(taken)
            wanted = describe()
            try:
                return await self._propose(wanted, found)
            except StatusError as error:
                if error.reason != "Invalid" or not self._bridge.release():
                    raise
                log.info("network=%s is taken: %s", self._bridge.network, error.message)
                taken = [*await self._networks(wanted.metadata.name), self._bridge.network]

    def _keep(self, known: str) -> None:
        """Take the network of the Node again. If the machine uses it by now, pods get addresses of
        another one: they reach each other and the outside, but not the pods of other machines."""
        if _is_ipv4(known):
            self._bridge.prefer(IPv4Network(known))
        self._bridge.reserve()
        if str(self._bridge.network) != known:
            log.warning(
                "another cluster of this machine uses network=%s of this node; pods have addresses"
                " of network=%s, which other machines do not reach. Delete the Node and start the"
                " agent again to change that",
                known,
                self._bridge.network,
            )

    async def _found(self, name: str) -> Node | None:
        try:
            return await self._client.get(RESOURCE, name)
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def _propose(self, wanted: Node, found: Node | None) -> Node:
        if found is not None:
            spec = replace(found.spec, podCIDR=wanted.spec.podCIDR, podCIDRs=wanted.spec.podCIDRs)
            return await self._client.update(RESOURCE, replace(found, spec=spec))
        # Without a status: the agent does not listen yet.
        return await self._client.create(RESOURCE, replace(wanted, status=NodeStatus()))

    async def _networks(self, name: str) -> list[IPv4Network]:
        """Return the pod networks of the other nodes."""
        found = await self._client.list(RESOURCE)
        cidrs = [each.spec.podCIDR for each in found.items if each.metadata.name != name]
        return [IPv4Network(each) for each in cidrs if _is_ipv4(each)]


def _is_ipv4(cidr: str) -> bool:
    try:
        IPv4Network(cidr)
    except ValueError:
        return False
    return True
