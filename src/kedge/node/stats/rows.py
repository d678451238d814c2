"""Rows: the rows of a frame while it is made."""

from array import array

from kedge.metrics.frame import WIDTH
from kedge.metrics.track import Track


class Rows:
    """The rows of a frame."""

    def __init__(self) -> None:
        self.values = array("f")
        self.details: list[bytes] = []

    def add(self, track: Track) -> int:
        self.values += track.row()
        self.details.append(track.details.row())
        return len(self.values) // WIDTH - 1
