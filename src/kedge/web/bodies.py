"""BodyBudget: memory for the bodies of requests under way, over all connections."""

from typing import Protocol


class Sender(Protocol):
    """A connection on which a body is coming in."""

    def refuse_body(self) -> None:
        """Drop the body and `forget` it; the peer may try again later."""
        ...


class BodyBudget:
    """Counts what has come of bodies, until their requests are answered.

    If it is too much, the body that has been coming in the longest is given up. The one that has
    come last would be the wrong choice: then a few peers who leave their bodies unfinished would
    lock everybody else out for as long as a body may take.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._unfinished: dict[Sender, int] = {}
        self.size = 0

    def grow(self, sender: Sender, size: int) -> None:
        """More has come; somebody may be refused for it, the sender included."""
        self._unfinished[sender] = self._unfinished.get(sender, 0) + size
        self.size += size
        while self.size > self._most:
            oldest = next(iter(self._unfinished), None)
            if oldest is None:
                return
            oldest.refuse_body()

    def finish(self, sender: Sender) -> int:
        """A body is complete; returns the size to `release` when its request is answered."""
        return self._unfinished.pop(sender, 0)

    def forget(self, sender: Sender) -> None:
        """A body will never be complete."""
        self.release(self._unfinished.pop(sender, 0))

    def release(self, size: int) -> None:
        self.size -= size
