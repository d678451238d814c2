"""BodyBudget: memory for the bodies of requests under way, over all connections."""

from typing import Protocol


class BodySender(Protocol):
    """A connection on which a body is coming in."""

    def refuse_body(self) -> None:
        """Refuse the body and `forget` it; the peer may retry later."""
        ...


class BodyBudget:
    """Counts received bytes of bodies until their requests are answered.

    Beyond the limit, the body that has been incomplete for the longest time is refused. Refusing
    the newest would be wrong: a few peers with unfinished bodies could lock out all others until
    the timeout.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._unfinished: dict[BodySender, int] = {}
        self.size = 0

    def grow(self, sender: BodySender, size: int) -> None:
        """Count more bytes of a body; may refuse a body, also this one."""
        self._unfinished[sender] = self._unfinished.get(sender, 0) + size
        self.size += size
        while self.size > self._most:
            oldest = next(iter(self._unfinished), None)
            if oldest is None:
                return
            oldest.refuse_body()

    def finish(self, sender: BodySender) -> int:
        """Mark a body as complete; returns the size to `release` when its request is answered."""
        return self._unfinished.pop(sender, 0)

    def forget(self, sender: BodySender) -> None:
        """Drop a body that will not be completed."""
        self.release(self._unfinished.pop(sender, 0))

    def release(self, size: int) -> None:
        self.size -= size
