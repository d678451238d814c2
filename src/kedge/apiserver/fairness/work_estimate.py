"""The seats that a request takes: by the objects of a list, and by the watchers of a write."""

from math import ceil
from typing import Final, NamedTuple

BYTES_PER_SEAT: Final = 100_000
MOST_LISTED_BYTES: Final = 1_000_000
"""Of a list: it is sent in pieces, so no more of it is in memory at once."""
MOST_LIST_SEATS: Final = 100
WATCHES_PER_SEAT: Final = 10
MOST_WRITE_SEATS: Final = 10
EVENT_SECONDS: Final = 0.005
"""How long a seat is taken for the watchers of one write."""
LEVEL_SHARE: Final = 0.15
"""The part of a level's seats that one request may take."""


class WorkEstimate(NamedTuple):
    """The seats of a request."""

    seats: int = 1
    final_seats: int = 0
    """Seats for the watchers of a write."""
    extra_seconds: float = 0.0
    """How long they are taken after the answer."""

    @property
    def width(self) -> int:
        return max(self.seats, self.final_seats)


ONE_SEAT: Final = WorkEstimate()


def most_seats(nominal: int, hand_size: int) -> int:
    """Return the most seats that a request of a level may take."""
    by_hand = nominal // hand_size if hand_size else nominal
    return max(1, min(ceil(nominal * LEVEL_SHARE), by_hand))


def of_list(count: int, average_bytes: float, limit: int, most: int) -> WorkEstimate:
    """Estimate a list of so many objects, or of a page of them."""
    listed = min(count, limit) if limit > 0 else count
    seats = ceil(min(listed * average_bytes, MOST_LISTED_BYTES) / BYTES_PER_SEAT)
    return WorkEstimate(max(1, min(seats, most, MOST_LIST_SEATS)))


def of_write(watchers: int, most: int) -> WorkEstimate:
    """Estimate a write whose event so many watchers get: few of them cost nothing."""
    if watchers < WATCHES_PER_SEAT:
        return ONE_SEAT
    wanted = ceil(watchers / WATCHES_PER_SEAT)
    seats = min(wanted, most, MOST_WRITE_SEATS)
    # The same work on fewer seats takes longer.
    return WorkEstimate(1, seats, wanted * EVENT_SECONDS / seats)
