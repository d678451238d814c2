"""ClaimMeters: the rolling windows of claims, which outlive the pods that use them."""

from collections.abc import Iterator
from typing import Final

from kedge.metrics.detail_windows import NONE_KNOWN
from kedge.metrics.frame import FramePod
from kedge.metrics.track import Track
from kedge.metrics.window_file import TrackKey
from kedge.metrics.windows import DAY, TICK_SECONDS
from kedge.node.stats.claim_usage import MeasuredClaim, MeasuredClaims
from kedge.node.stats.details import INODES, STORAGE
from kedge.node.stats.meters import TrackIndex
from kedge.node.stats.rows import Rows

MOST_UNMOUNTED: Final = 64
"""Claims whose windows are kept although no pod uses them, those that were used last."""
_NO_COUNTERS: Final = (-1, -1)
"""A claim uses no processor and no memory."""


class ClaimMeters:
    """A track for each claim; a claim's bytes and inodes are details of it."""

    def __init__(self, claims: MeasuredClaims, book: TrackIndex) -> None:
        self._claims = claims
        self._book = book
        self._tracks: dict[str, Track] = {}
        """By uid of the claim, those that were measured last at the end."""
        self._measured: list[MeasuredClaim] = []

    def close(self, tick: int) -> None:
        """End a tick."""
        self._measured = self._claims.all()
        for claim in self._measured:
            track = self._tracks.pop(claim.uid, None) or self._begun(claim.uid)
            self._tracks[claim.uid] = track
            if track.tick < tick:
                now = self._book.clock.monotonic()
                track.sample(tick * TICK_SECONDS, now, 1, _NO_COUNTERS)
                track.close(tick, _values(claim))
        self._forget(tick)

    def measured(self, rows: Rows) -> Iterator[FramePod]:
        """Yield the mounted claims as frames have them: pods without containers."""
        for claim in self._measured:
            track = self._tracks[claim.uid]
            yield FramePod(
                claim.namespace, claim.name, claim.uid, track.since, 0, rows.add(track), ()
            )

    def tracks(self) -> Iterator[Track]:
        yield from self._tracks.values()

    def uids(self) -> set[str]:
        """Return the claims whose windows are in use."""
        return self._claims.uids() | self._tracks.keys()

    def _begun(self, uid: str) -> Track:
        return self._book.of(uid).get("") or self._book.begin(TrackKey(uid, ""))

    def _forget(self, tick: int) -> None:
        mounted = {each.uid for each in self._measured} | self._claims.uids()
        unmounted = [uid for uid in self._tracks if uid not in mounted]
        surplus = len(unmounted) - MOST_UNMOUNTED
        for number, uid in enumerate(unmounted):
            if number < surplus or self._tracks[uid].tick < tick - DAY // TICK_SECONDS:
                del self._tracks[uid]
                self._book.forget(uid)


def _values(claim: MeasuredClaim) -> list[float]:
    values = list(NONE_KNOWN)
    values[STORAGE] = float(claim.usage.used_bytes)
    values[INODES] = float(claim.usage.inodes_used)
    return values
