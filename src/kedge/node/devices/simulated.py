"""Simulated devices: a built-in plugin for resources that only have to exist."""

import re
from collections.abc import Sequence

from kedge.deviceplugin import ContainerAllocateResponse, Device, Owner, Plugin
from kedge.machinery.clock import Clock


class SimulatedPlugin(Plugin):
    """A plugin with a number of devices; containers see only a variable with their names."""

    def __init__(self, resource: str, number: int, clock: Clock) -> None:
        super().__init__(resource, clock=clock)
        name = resource.rpartition("/")[2]
        self._devices = [Device(f"{name}-{i}") for i in range(number)]

    def devices(self) -> Sequence[Device]:
        return self._devices

    async def allocate(self, ids: Sequence[str], owner: Owner | None) -> ContainerAllocateResponse:
        return ContainerAllocateResponse(envs={variable(self.resource): ",".join(ids)})


def variable(resource: str) -> str:
    """Return the variable with the names of a container's devices: EXAMPLE_COM_GADGET."""
    return re.sub("[^A-Z0-9]", "_", resource.upper())
