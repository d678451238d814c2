"""Limits for concurrent exec, attach and port-forward sessions.

Each session holds descriptors, tasks and a process in the container. The kubelet has no limit, so
one tenant with `pods/exec` can exhaust the machine.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from kedge.machinery.errors import StatusError

PER_POD: Final = 64
PER_NODE: Final = 256


class SessionCounter:
    """Counts open sessions by pod."""

    def __init__(self, per_pod: int = PER_POD, per_node: int = PER_NODE) -> None:
        self._per_pod = per_pod
        self._per_node = per_node
        self._counts: Counter[str] = Counter()

    def check(self, uid: str) -> None:
        """Raise 429 if the pod or the node has reached its limit."""
        if self._counts[uid] >= self._per_pod:
            raise _too_many(f"the pod already has {self._per_pod}")
        if self._counts.total() >= self._per_node:
            raise _too_many(f"the node already has {self._per_node}")

    @contextlib.contextmanager
    def open(self, uid: str) -> Iterator[None]:
        """Count a session. The caller must not await between `check` and this."""
        self._counts[uid] += 1
        try:
            yield
        finally:
            self._counts[uid] -= 1
            if not self._counts[uid]:
                del self._counts[uid]


def _too_many(why: str) -> StatusError:
    message = f"too many exec, attach and port-forward sessions: {why}"
    return StatusError(429, "TooManyRequests", message, retry_after=1)
