"""Limits on the number of requests that are worked on at once, and on their time."""

from typing import Final

import msgspec

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

RequestPlace = tuple[int, bool]
"""The index of reads or writes, and whether an ordinary user holds the place."""


class RequestLimit(msgspec.Struct, frozen=True):
    """Bounds for requests of one sort; 0 sets none."""

    ordinary: int
    """Places of ordinary users; their further requests get 429."""
    reserve: int
    """Further places for users that keep the cluster alive; administrators get half of them."""

    def reserve_of(self, user: User) -> int:
        """Return how many places there are for this user besides the ordinary ones."""
        groups = user.groups
        if _MASTERS in groups:
            return self.reserve // 2
        if not user.name.startswith("system:"):
            return 0
        own = user.name in _OWN_NAMES or not _OWN.isdisjoint(groups)
        return self.reserve if own else 0


READS: Final = RequestLimit(400, 200)
WRITES: Final = RequestLimit(200, 100)


class InFlight:
    """Counts requests. Enter before the work begins, leave when it is done.

    Users with a reserve are refused when all users together hold the ordinary places and the
    reserve. Ordinary users are refused when they hold the ordinary places themselves: a large Job
    keeps hundreds of the controllers' writes in flight, and must not lock out other tenants.
    """

    __slots__ = ("_limits", "_ordinary", "counts", "refused", "seconds")

    def __init__(
        self,
        reads: RequestLimit = READS,
        writes: RequestLimit = WRITES,
        *,
        seconds: float | None = None,
    ) -> None:
        self._limits = (reads, writes)
        self._ordinary = [0, 0]
        self.seconds = seconds
        """The time that a request may take; None sets no limit."""
        self.counts = [0, 0]
        """Reads and writes that are being worked on."""
        self.refused = [0, 0]
        """Reads and writes that were refused."""

    def enter(self, verb: str, user: User) -> RequestPlace:
        """Take a place, to be given back with `leave`; 429 if there is none."""
        sort = 0 if verb in _READS else 1
        limit = self._limits[sort]
        reserve = limit.reserve_of(user)
        count = self.counts[sort] if reserve else self._ordinary[sort]
        if count >= limit.ordinary + reserve and limit.ordinary:
            self.refused[sort] += 1
            raise too_many()
        self.counts[sort] += 1
        self._ordinary[sort] += not reserve
        return sort, not reserve

    def leave(self, place: RequestPlace) -> None:
        sort, ordinary = place
        self.counts[sort] -= 1
        self._ordinary[sort] -= ordinary


def counted(verb: str, subresource: str) -> bool:
    """Whether a request takes a place."""
    return verb not in LONG_RUNNING and subresource not in STREAMED


def too_late() -> StatusError:
    return timeout("Timeout: request did not complete within the allotted timeout")


def too_many(retry_after: int = 1) -> StatusError:
    message = "Too many requests, please try again later."
    return StatusError(429, "TooManyRequests", message, retry_after=retry_after)
