"""Where the pods of all nodes are, and whether that has changed."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from kedge.node.network.peers import NodeAddresses, NodeSite, site


class NodeSites:
    """Receiver of the Nodes of the cluster. Most changes of a Node are reports of its status, which
    move no pods: they do not count as changes."""

    def __init__(self) -> None:
        self.changed: Final = asyncio.Event()
        """Set with each change."""
        self._sites: dict[str, NodeSite] = {}

    def __len__(self) -> int:
        return len(self._sites)

    def __iter__(self) -> Iterator[NodeSite]:
        return iter(self._sites.values())

    def replace(self, objects: Iterable[NodeAddresses]) -> None:
        found = {each.metadata.name: site(each) for each in objects}
        if found != self._sites:
            self._sites = found
            self.changed.set()

    def put(self, obj: NodeAddresses) -> None:
        found = site(obj)
        if self._sites.get(found.name) != found:
            self._sites[found.name] = found
            self.changed.set()

    def remove(self, obj: NodeAddresses) -> None:
        if self._sites.pop(obj.metadata.name, None) is not None:
            self.changed.set()
