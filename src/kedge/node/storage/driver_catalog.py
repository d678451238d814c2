"""The volume drivers of a node: kedge's own, and those that have registered."""

from collections.abc import Callable, Mapping
from typing import Protocol

from kedge.node.storage.volume_driver import DriverError, VolumeDriver


class DriverCatalog(Protocol):
    """The drivers of the node."""

    def find(self, name: str) -> VolumeDriver:
        """Raises DriverError if there is no such driver."""
        ...


class RegisteredDrivers(Protocol):
    """Drivers that registered over the plugin socket."""

    def find(self, name: str) -> VolumeDriver | None: ...


class NodeDrivers:
    """Fulfils DriverCatalog. An own driver is made when a volume first needs it."""

    def __init__(
        self,
        own: Mapping[str, Callable[[], VolumeDriver]],
        registered: RegisteredDrivers | None,
    ) -> None:
        self._own = own
        self._made: dict[str, VolumeDriver] = {}
        self._registered = registered

    def find(self, name: str) -> VolumeDriver:
        if name in self._made:
            return self._made[name]
        if name in self._own:
            made = self._made[name] = self._own[name]()
            return made
        found = self._registered.find(name) if self._registered is not None else None
        if found is None:
            raise DriverError(
                "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient:"
                f" driver name {name} not found in the list of registered CSI drivers"
            )
        return found
