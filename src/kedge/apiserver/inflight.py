"""Limits on the number of requests that are worked on at once, and on their time."""

from dataclasses import dataclass
from typing import Final

from kedge.apiserver.request import User
from kedge.machinery.errors import StatusError, timeout

LONG_RUNNING: Final = frozenset(("watch", "connect", "proxy"))
"""Verbs that are not counted: they wait most of the time."""
STREAMED: Final = frozenset(("attach", "exec", "log", "portforward", "proxy"))
"""Subresources that are not counted."""
_READS: Final = frozenset(("get", "list"))
_MASTERS: Final = "system:masters"
_OWN: Final = frozenset(("system:nodes", "system:serviceaccounts:kube-system"))
"""Groups of users that keep the cluster alive."""
_OWN_NAMES: Final = frozenset(
    ("system:apiserver", "system:kube-controller-manager", "system:kube-scheduler")
)


@dataclass(frozen=True)
class RequestLimit:
    """Bounds for requests of one sort; 0 sets none."""

    ordinary: int
    """Further requests get 429."""
    reserve: int
    """Further places for users that keep the cluster alive; administrators get half of them."""

    def of(self, user: User) -> int:
        groups = user.groups
        if _MASTERS in groups:
            return self.ordinary + self.reserve // 2
        if not user.name.startswith("system:"):
            return self.ordinary
        own = user.name in _OWN_NAMES or not _OWN.isdisjoint(groups)
        return self.ordinary + (self.reserve if own else 0)


READS: Final = RequestLimit(400, 200)
WRITES: Final = RequestLimit(200, 100)


class InFlight:
    """Counts requests. Enter before the work begins, leave when it is done."""

    __slots__ = ("_limits", "counts", "refused", "seconds")

    def __init__(
        self,
        reads: RequestLimit = READS,
        writes: RequestLimit = WRITES,
        *,
        seconds: float | None = None,
    ) -> None:
        self._limits = (reads, writes)
        self.seconds = seconds
        """The time that a request may take; None sets no limit."""
        self.counts = [0, 0]
        """Reads and writes that are being worked on."""
        self.refused = [0, 0]
        """Reads and writes that were refused."""

    def enter(self, verb: str, user: User) -> int:
        """Take a place, to be given back with `leave`; 429 if there is none."""
        sort = 0 if verb in _READS else 1
        limit, count = self._limits[sort], self.counts[sort]
        if count >= limit.ordinary > 0 and count >= limit.of(user):
            self.refused[sort] += 1
            raise too_many()
        self.counts[sort] = count + 1
        return sort

    def leave(self, place: int) -> None:
        self.counts[place] -= 1


def counted(verb: str, subresource: str) -> bool:
    """Whether a request takes a place."""
    return verb not in LONG_RUNNING and subresource not in STREAMED


def too_late() -> StatusError:
    return timeout("Timeout: request did not complete within the allotted timeout")


def too_many() -> StatusError:
    message = "Too many requests, please try again later."
    return StatusError(429, "TooManyRequests", message, retry_after=1)
