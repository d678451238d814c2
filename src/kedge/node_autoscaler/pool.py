"""NodePool: the local nodes that can be started and stopped."""

from collections.abc import Sequence
from typing import Protocol


class NodePool(Protocol):
    """Starts and stops node agents of this machine."""

    @property
    def names(self) -> Sequence[str]:
        """The nodes that may be added, in the order in which they are."""
        ...

    @property
    def least(self) -> int:
        """How many nodes there are besides."""
        ...

    def running(self) -> set[str]:
        """Return the nodes of the pool whose agents run."""
        ...

    async def start(self, name: str) -> None:
        """Start the agent of a node; raises OSError."""
        ...

    async def stop(self, name: str) -> None:
        """Stop the agent of a node and everything that it runs; raises OSError."""
        ...
