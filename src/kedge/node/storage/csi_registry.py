"""The CSI drivers that have registered on a node."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from kedge.deviceplugin.messages import PluginInfo
from kedge.machinery.clock import Clock
from kedge.machinery.names import dns_subdomain
from kedge.node.devices.watcher import PluginRefused, Withdraw
from kedge.node.storage.storage_report import ReportedDriver
from kedge.node.storage.volume_driver import DriverError

if TYPE_CHECKING:
    from kedge.node.storage.csi_driver import CsiDriverClient, PathName
    from kedge.node.storage.csi_messages import NodeInfoResponse

log = logging.getLogger(__name__)

LONGEST_NAME: Final = 63
LONGEST_NODE_ID: Final = 256
MOST_SEGMENTS: Final = 16

Announce = Callable[[Mapping[str, str]], Awaitable[None]]
"""Writes the labels of a driver's topology to the node, and the drivers to its CSINode."""


class CsiRegistry:
    """Fulfils watcher.PluginHandler and driver_catalog.RegisteredDrivers."""

    def __init__(self, clock: Clock, in_pods: "PathName" = lambda path: path) -> None:
        """`in_pods` returns how drivers in pods name a path of this machine."""
        self._in_pods = in_pods
        self._clock = clock
        self._drivers: dict[str, CsiDriverClient] = {}
        self._nodes: dict[str, ReportedDriver] = {}
        self.announce: Announce | None = None

    def find(self, name: str) -> "CsiDriverClient | None":
        return self._drivers.get(name)

    def nodes(self) -> list[ReportedDriver]:
        """Return the drivers as CSINode lists them."""
        return [self._nodes[name] for name in sorted(self._nodes)]

    async def adopt(self, info: PluginInfo, endpoint: Path) -> Withdraw:
        # Not above: its messages take 300 KB, and few nodes have such a driver.
        from kedge.node.storage.csi_driver import CsiDriverClient

        self._check(info, endpoint)
        # A driver that gives its endpoint as in a pod sees the volumes there too.
        named = self._in_pods if str(endpoint) != info.endpoint else lambda path: path
        driver = CsiDriverClient(info.name, endpoint, self._clock, named)
        driver.open()
        try:
            answer = await driver.node_info()
            described, labels = node_driver(info.name, answer)
            self._drivers[info.name], self._nodes[info.name] = driver, described
            if self.announce is not None:
                await self.announce(labels)
        except BaseException as error:
            await self._withdraw(driver)
            if isinstance(error, DriverError | ValueError):
                raise PluginRefused(f"plugin registration failed with err: {error}") from error
            raise
        log.info("driver registered driver=%s endpoint=%s", info.name, endpoint)
        return partial(self._withdraw, driver)

    async def refresh(self, name: str) -> bool:
        """Ask a driver again how many volumes the node can have; return whether that has changed.
        Raises DriverError or ValueError."""
        driver, known = self._drivers.get(name), self._nodes.get(name)
        if driver is None or known is None:
            return False
        described, _ = node_driver(name, await driver.node_info())
        if self._drivers.get(name) is not driver or described.most_volumes == known.most_volumes:
            return False
        # The node id and the topology of a registered driver do not change.
        self._nodes[name] = replace(known, most_volumes=described.most_volumes)
        return True

    def _check(self, info: PluginInfo, endpoint: Path) -> None:
        """Raises PluginRefused."""
        failed = "plugin validation failed with err: "
        if not any(each.lstrip("v").startswith("1.") for each in info.supported_versions):
            raise PluginRefused(f"{failed}none of the versions of {info.name[:253]} is supported")
        if dns_subdomain(info.name) or len(info.name) > LONGEST_NAME:
            raise PluginRefused(f'{failed}"{info.name[:253]}" is no name of a CSI driver')
        if not endpoint.is_absolute():
            raise PluginRefused(f"{failed}the endpoint {endpoint} is no absolute path")
        if info.name in self._drivers:
            raise PluginRefused(
                f"{failed}a driver of the name {info.name} is registered with this version already"
            )

    async def _withdraw(self, driver: "CsiDriverClient") -> None:
        if self._drivers.get(driver.name) is driver:
            del self._drivers[driver.name]
            self._nodes.pop(driver.name, None)
            if self.announce is not None:
                try:
                    await self.announce({})
                except Exception as error:
                    log.warning("CSINode not updated driver=%s error=%r", driver.name, error)
        await driver.close()


def node_driver(name: str, answer: "NodeInfoResponse") -> tuple[ReportedDriver, dict[str, str]]:
    """Return a driver as CSINode lists it, and the labels of the node. Raises ValueError."""
    if not answer.node_id or len(answer.node_id) > LONGEST_NODE_ID:
        raise ValueError(f"error adding CSI driver node info: the node id of {name} is invalid")
    topology = answer.accessible_topology
    segments = dict(topology.segments) if topology is not None else {}
    if len(segments) > MOST_SEGMENTS:
        raise ValueError(f"the topology of {name} has more than {MOST_SEGMENTS} keys")
    most = min(max(answer.max_volumes_per_node, 0), 2**31 - 1)
    return ReportedDriver(name, answer.node_id, tuple(sorted(segments)), most), segments
