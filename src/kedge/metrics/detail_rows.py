"""DetailRows: the details of all rows of a frame, as they were received.

One piece of memory for a node instead of one for each pod. A row is cut out when it is read; most
are replaced by the next frame unread.
"""

from array import array
from collections.abc import Sequence
from typing import overload

from kedge.metrics.detail_windows import MASKS, size_of_filled


class DetailRows(Sequence[bytes]):
    """Rows, one behind the other."""

    __slots__ = ("_ends", "_text")

    def __init__(self, text: bytes, count: int) -> None:
        """Raises struct.error if the text has fewer rows, and ValueError if it has more."""
        self._text = text
        self._ends = array("I")
        end, masks_of, size = 0, MASKS.unpack_from, MASKS.size
        for _ in range(count):
            end += size + size_of_filled(masks_of(text, end)[1])
            self._ends.append(end)
        if end != len(text):
            raise ValueError("there are bytes behind the last row")

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        return self._text[self._ends[at - 1] if at else 0 : self._ends[at]]
