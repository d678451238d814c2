"""Rows of details in one piece of memory."""

import struct

import pytest

from kedge.metrics.detail_windows import CODES, MASKS, NO_ROW
from kedge.metrics.frame import DetailRows


def row(filled: int) -> bytes:
    codes = struct.pack(f"<{CODES}H", *range(CODES)) * filled.bit_count()
    return MASKS.pack(0x1FFFF, filled) + codes


ROWS = [NO_ROW, row(0b101), row(1 << 16), NO_ROW, row(0xFF)]


def test_rows_are_those_that_were_joined() -> None:
    rows = DetailRows(b"".join(ROWS), len(ROWS))
    assert len(rows) == 5
    assert list(rows) == ROWS
    assert rows[1:3] == ROWS[1:3]
    assert rows[4] == ROWS[4]
    assert rows == DetailRows(b"".join(ROWS), len(ROWS))
    assert rows != DetailRows(b"".join(ROWS[1:]), len(ROWS) - 1)
    with pytest.raises(IndexError):
        rows[5]


@pytest.mark.parametrize("cut", [1, 8, 9, 20])
def test_rows_that_lack_bytes_are_refused(cut: int) -> None:
    with pytest.raises((struct.error, ValueError)):
        DetailRows(b"".join(ROWS)[:-cut], len(ROWS))


def test_more_bytes_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="behind the last row"):
        DetailRows(b"".join([*ROWS, NO_ROW]), len(ROWS))
