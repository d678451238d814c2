import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.supervisor.container import logs
from kedge.supervisor.container.logs import PIECE, ContainerLog, LineSplitter, stamp

AT = 1_475_712_000_123_456_789
WHEN = b"2016-10-06T00:00:00.123456789Z"


def rows(log: bytes) -> list[tuple[bytes, bytes]]:
    """Tag and text of each line."""
    parts = [line.split(b" ", 3) for line in log.split(b"\n")[:-1]]
    return [(tag, text) for _, _, tag, text in parts]


def test_a_line_has_a_time_a_stream_a_tag_and_its_text() -> None:
    assert stamp(AT) == WHEN
    assert LineSplitter("stderr").cut(b"hello there\n", AT) == WHEN + b" stderr F hello there\n"


def test_a_line_is_held_back_until_it_is_ended() -> None:
    lines = LineSplitter("stdout")
    assert lines.cut(b"one", AT) == b""
    assert rows(lines.cut(b" two\nthr", AT)) == [(b"F", b"one two")]
    assert rows(lines.end(AT)) == [(b"P", b"thr")]
    assert lines.end(AT) == b""


def test_a_long_line_comes_in_pieces_and_only_the_last_is_full() -> None:
    log = LineSplitter("stdout").cut(b"x" * (2 * PIECE + 1) + b"\n", AT)
    assert [(tag, len(text)) for tag, text in rows(log)] == [
        (b"P", PIECE),
        (b"P", PIECE),
        (b"F", 1),
    ]


def test_a_terminal_s_line_ends_lose_their_carriage_return() -> None:
    log = LineSplitter("stdout", terminal=True).cut(b"one\r\ntwo\rthree\r\n", AT)
    assert rows(log) == [(b"F", b"one"), (b"F", b"two\rthree")]


@given(st.lists(st.binary(max_size=3 * PIECE), max_size=6))
def test_whatever_is_said_can_be_put_together_again(chunks: list[bytes]) -> None:
    lines = LineSplitter("stdout")
    log = b"".join(lines.cut(chunk, AT) for chunk in chunks) + lines.end(AT)
    said = b"".join(text + (b"\n" if tag == b"F" else b"") for tag, text in rows(log))
    assert said == b"".join(chunks)
    assert all(len(text) <= PIECE for _, text in rows(log))


def test_a_log_is_cut_before_it_is_too_long_and_only_the_newest_parts_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 10)
    path = tmp_path / "pod" / "0.log"
    log = ContainerLog(str(path))
    for number in range(12):
        log.write(b"line %02d\n" % number)
    log.close()
    log.write(b"lost\n")
    parts = logs.older_parts(str(path))
    kept = [Path(each).read_bytes() for each in (*parts, str(path))]
    assert kept == [b"line %02d\n" % number for number in range(12 - logs.MOST_FILES, 12)]
    assert all(re.fullmatch(r"0\.log\.\d{8}-\d{6}\.\d{9}", Path(each).name) for each in parts)


def test_a_log_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 10)
    path = tmp_path / "0.log"
    path.write_bytes(b"before\n")
    log = ContainerLog(str(path))
    log.write(b"1\n")
    assert path.read_bytes() == b"before\n1\n"
    log.write(b"2\n")
    log.close()
    assert path.read_bytes() == b"2\n"


def test_a_clock_that_is_set_back_does_not_make_the_newest_part_the_eldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 1)
    moments = iter([5_000_000_000, 4_000_000_000, 6_000_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(moments))
    log = ContainerLog(str(tmp_path / "0.log"))
    for number in range(4):
        log.write(b"%d\n" % number)
    log.close()
    parts = logs.older_parts(str(tmp_path / "0.log"))
    assert [Path(each).read_bytes() for each in parts] == [b"0\n", b"1\n", b"2\n"]


def test_a_log_that_cannot_be_cut_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 10)
    path = tmp_path / "0.log"
    log = ContainerLog(str(path))

    def full(*_: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        for _ in range(5):
            log.write(b"12345678\n")
    assert path.read_bytes() == b"12345678\n"
    log.write(b"new\n")
    log.close()
    assert path.read_bytes() == b"new\n"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/full", path)])
def test_what_is_no_file_is_not_written_to(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "0.log")
    log = ContainerLog(str(tmp_path / "0.log"))
    log.write(b"x")
    log.close()
