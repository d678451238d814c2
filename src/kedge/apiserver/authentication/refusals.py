"""Credentials that do not hold: why, and a log of them that a flood cannot fill."""

import logging

from kedge.machinery.clock import Clock

log = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds in which one source is logged at most once."""
MOST_SOURCES = 1024
"""Sources that are counted one by one; further ones within a period share one count."""


class CredentialRefused(Exception):
    """The reason why a credential is refused.

    It never quotes the credential: clients and logs see it.
    """


class RefusalLog:
    """Logs who is refused: each source once in a period, with the number of times before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: dict[str, list[float]] = {}
        """By source: when it was logged, and how often it was refused since."""
        self._uncounted = 0

    def note(self, source: str, why: str) -> None:
        now = self._clock.monotonic()
        known = self._sources.get(source)
        if known is not None and now < known[0] + PERIOD:
            known[1] += 1
            return
        if known is None and len(self._sources) >= MOST_SOURCES and not self._make_room(now):
            self._uncounted += 1
            return
        more = int(known[1]) if known is not None else 0
        self._sources.pop(source, None)
        self._sources[source] = [now, 0]
        message = "refused credentials source=%s reason=%r not_logged_before=%d"
        log.warning(message, source or "unknown", why, more)

    def _make_room(self, now: float) -> bool:
        """Forget sources whose period is over, the longest known first."""
        for source, (logged, _) in list(self._sources.items()):
            if now < logged + PERIOD:
                break
            del self._sources[source]
        if len(self._sources) >= MOST_SOURCES:
            return False
        if self._uncounted:
            log.warning("refused credentials of further sources count=%d", self._uncounted)
            self._uncounted = 0
        return True
