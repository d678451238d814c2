"""Logs in CRI's format, as users want to see them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.node.server.log_reader import LogLines, LogOptions, LogReader, tail


def stamp(second: int) -> str:
    return f"2026-01-01T00:00:{second:02d}.000000000Z"


def line(second: int, text: str, stream: str = "stdout", tag: str = "F") -> bytes:
    return f"{stamp(second)} {stream} {tag} {text}\n".encode()


LOG = (
    line(1, "one")
    + line(2, "oops", "stderr")
    + line(3, "long ", tag="P")
    + line(3, "line ", tag="P")
    + line(3, "joined")
    + line(4, "four")
)


def shown(log: bytes, **wanted: object) -> str:
    return LogLines(LogOptions(**wanted)).feed(log).decode()  # type: ignore[arg-type]


def test_pieces_are_joined_and_streams_mixed_in_order() -> None:
    assert shown(LOG) == "one\noops\nlong line joined\nfour\n"


def test_times_stand_once_before_every_line() -> None:
    text = shown(LOG, timestamps=True)
    assert text.splitlines()[2] == f"{stamp(3)} long line joined"


def test_one_stream_can_be_chosen() -> None:
    assert shown(LOG, stream="stderr") == "oops\n"


def test_what_is_too_old_is_left_out() -> None:
    assert shown(LOG, since=stamp(3)) == "long line joined\nfour\n"


def test_no_more_bytes_than_wanted() -> None:
    lines = LogLines(LogOptions(limit=6))
    assert lines.feed(LOG) == b"one\noo"
    assert lines.done


@given(st.lists(st.integers(1, 30), max_size=30))
def test_a_log_may_come_in_any_pieces(cuts: list[int]) -> None:
    lines, rest, text = LogLines(LogOptions()), LOG, b""
    for size in cuts:
        text += lines.feed(rest[:size])
        rest = rest[size:]
    text += lines.feed(rest)
    assert text.decode() == shown(LOG)


def test_lines_that_are_none_are_passed_over() -> None:
    assert shown(b"garbage\n" + line(1, "good")) == "good\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_bytes(LOG)
    return path


def read(reader: LogReader) -> str:
    data = b""
    while piece := reader.read():
        data += piece
    return shown(data)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (0, ""),
        (1, "four\n"),
        (2, "long line joined\nfour\n"),
        (3, "oops\nlong line joined\nfour\n"),
        (99, "one\noops\nlong line joined\nfour\n"),
    ],
)
def test_the_tail_counts_lines_as_people_do(log: Path, lines: int, expected: str) -> None:
    reader = LogReader(str(log))
    reader.skip_to_tail(lines)
    assert read(reader) == expected
    reader.close()


def test_a_last_line_that_never_ended_counts_too(log: Path) -> None:
    log.write_bytes(LOG + line(5, "prompt> ", tag="P"))
    reader = LogReader(str(log))
    reader.skip_to_tail(1)
    assert read(reader) == "prompt> "
    reader.close()


@given(
    st.lists(st.text("ab ", max_size=400), max_size=3000),
    st.integers(0, 3005),
)
def test_the_tail_of_a_large_file_is_found_from_its_end(texts: list[str], lines: int) -> None:
    file = os.memfd_create("log")
    try:
        os.write(file, b"".join(line(1, text) for text in texts))
        found, start = tail(file, lines)
        rest = os.pread(file, 10_000_000, start)
    finally:
        os.close(file)
    assert found == min(lines, len(texts))
    assert shown(rest) == "".join(f"{text}\n" for text in texts[len(texts) - found :])


@pytest.fixture
def rotated(tmp_path: Path) -> Iterator[LogReader]:
    path = tmp_path / "0.log"
    (tmp_path / "0.log.20260101-000001").write_bytes(line(1, "one") + line(2, "two"))
    (tmp_path / "0.log.20260101-000002").write_bytes(line(3, "three"))
    (tmp_path / "1.log.20260101-000002").write_bytes(line(3, "of another container"))
    path.write_bytes(line(4, "four"))
    reader = LogReader(str(path))
    yield reader
    reader.close()


def test_what_was_set_aside_is_read_first(rotated: LogReader) -> None:
    assert read(rotated) == "one\ntwo\nthree\nfour\n"


def test_the_tail_reaches_back_into_what_was_set_aside(rotated: LogReader) -> None:
    rotated.skip_to_tail(3)
    assert read(rotated) == "two\nthree\nfour\n"


def test_files_that_are_removed_meanwhile_are_still_read(
    tmp_path: Path, rotated: LogReader
) -> None:
    (tmp_path / "0.log.20260101-000001").unlink()
    assert read(rotated) == "one\ntwo\nthree\nfour\n"


def test_a_follower_goes_on_in_the_new_file(log: Path) -> None:
    reader = LogReader(str(log))
    read(reader)
    assert not reader.goes_on()
    aside = log.rename(log.with_name("0.log.20260101-000009"))
    assert not reader.goes_on()  # the new file is not there yet: more may come in the old one
    with aside.open("ab") as old:
        old.write(line(5, "last of the old"))
    assert read(reader) == "last of the old\n"
    log.write_bytes(line(6, "first of the new"))
    assert reader.has_more()
    assert reader.goes_on()
    assert read(reader) == "first of the new\n"
    reader.close()


def test_a_follower_that_was_away_for_two_rotations_misses_nothing(log: Path) -> None:
    reader = LogReader(str(log))
    read(reader)
    log.rename(log.with_name("0.log.20260101-000008"))
    log.write_bytes(line(5, "between"))
    log.rename(log.with_name("0.log.20260101-000009"))
    log.write_bytes(line(6, "newest"))
    assert reader.goes_on()
    assert read(reader) == "between\nnewest\n"
    reader.close()


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    reader = LogReader(str(path))
    assert read(reader) == ""
    assert not reader.has_more()
    path.write_bytes(line(1, "here"))
    assert reader.has_more()
    assert reader.goes_on()
    assert read(reader) == "here\n"
    reader.close()
