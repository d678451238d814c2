from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kedge.supervisor.logs import PIECE, Lines, Log, stamp

AT = 1_475_712_000_123_456_789
WHEN = b"2016-10-06T00:00:00.123456789Z"


def rows(log: bytes) -> list[tuple[bytes, bytes]]:
    """Tag and text of each line."""
    parts = [line.split(b" ", 3) for line in log.split(b"\n")[:-1]]
    return [(tag, text) for _, _, tag, text in parts]


def test_a_line_has_a_time_a_stream_a_tag_and_its_text() -> None:
    assert stamp(AT) == WHEN
    assert Lines("stderr").cut(b"hello there\n", AT) == WHEN + b" stderr F hello there\n"


def test_a_line_is_held_back_until_it_is_ended() -> None:
    lines = Lines("stdout")
    assert lines.cut(b"one", AT) == b""
    assert rows(lines.cut(b" two\nthr", AT)) == [(b"F", b"one two")]
    assert rows(lines.end(AT)) == [(b"P", b"thr")]
    assert lines.end(AT) == b""


def test_a_long_line_comes_in_pieces_and_only_the_last_is_full() -> None:
    log = Lines("stdout").cut(b"x" * (2 * PIECE + 1) + b"\n", AT)
    assert [(tag, len(text)) for tag, text in rows(log)] == [
        (b"P", PIECE),
        (b"P", PIECE),
        (b"F", 1),
    ]


def test_a_terminal_s_line_ends_lose_their_carriage_return() -> None:
    log = Lines("stdout", terminal=True).cut(b"one\r\ntwo\rthree\r\n", AT)
    assert rows(log) == [(b"F", b"one"), (b"F", b"two\rthree")]


@given(st.lists(st.binary(max_size=3 * PIECE), max_size=6))
def test_whatever_is_said_can_be_put_together_again(chunks: list[bytes]) -> None:
    lines = Lines("stdout")
    log = b"".join(lines.cut(chunk, AT) for chunk in chunks) + lines.end(AT)
    said = b"".join(text + (b"\n" if tag == b"F" else b"") for tag, text in rows(log))
    assert said == b"".join(chunks)
    assert all(len(text) <= PIECE for _, text in rows(log))


def test_a_renamed_log_is_left_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "pod" / "0.log"
    log = Log(str(path))
    log.write(b"one\n")
    path.rename(tmp_path / "old.log")
    log.write(b"two\n")
    log.reopen()
    log.write(b"three\n")
    log.close()
    log.write(b"lost\n")
    assert (tmp_path / "old.log").read_bytes() == b"one\ntwo\n"
    assert path.read_bytes() == b"three\n"
