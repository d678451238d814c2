"""Simulated devices: a plugin of the node's own for those that only have to exist."""

import re
from collections.abc import Sequence

from kedge.deviceplugin import ContainerAllocateResponse, Device, Owner, Plugin
from kedge.machinery.clock import Clock


class SimulatedPlugin(Plugin):
    """So many devices of a resource, of which containers see nothing but a variable."""

    def __init__(self, resource: str, number: int, clock: Clock) -> None:
        super().__init__(resource, clock=clock)
        name = resource.rpartition("/")[2]
        self._devices = [Device(f"{name}-{i}") for i in range(number)]

    def devices(self) -> Sequence[Device]:
        return self._devices

    async def allocate(self, ids: Sequence[str], owner: Owner | None) -> ContainerAllocateResponse:
        return ContainerAllocateResponse(envs={variable(self.resource): ",".join(ids)})


def variable(resource: str) -> str:
    """Where a container finds the names of its devices: EXAMPLE_COM_GADGET."""
    return re.sub("[^A-Z0-9]", "_", resource.upper())
