"""A window file of layout 4 is taken over: every window says what it said."""

import errno
import logging
import os
import struct
from array import array
from pathlib import Path

import pytest

from kedge.metrics import detail_windows, series_memory
from kedge.metrics.detail_windows import NONE_KNOWN, DetailWindows
from kedge.metrics.series_memory import DayCodes, split
from kedge.metrics.track import Track
from kedge.metrics.window_file import SLOTS, TrackKey, TrackSlot, WindowFile
from kedge.metrics.windows import MINUTE, WINDOWS

HEADER, PIECE, OLD_SLOT, OLD_SLOTS = 1 << 16, 1 << 21, 80_848, 25
TICKS = 9000
BEGIN = 190_000_000 * 10


def filled(path: Path) -> WindowFile:
    """Two things with a day of data each, written in the present layout."""
    file = WindowFile(path, "boot-1")
    for number in range(2):
        slot = file.claim(TrackKey(f"uid-{number}", "main"))
        track = Track(slot, BEGIN // 10, same_boot=True)
        for tick in range(BEGIN // 10 + 1, BEGIN // 10 + TICKS):
            for second in range(tick * 10 - 9, tick * 10 + 1) if tick % 50 == 0 else (tick * 10,):
                used = int(second * 1e9 * (1 + number + (second % 700) / 1e6))
                track.sample(second, float(second), 1, (used, (second % 977) << 12))
            details = list(NONE_KNOWN)
            details[2], details[3] = 0.0, float(tick % 40)
            track.close(tick, details)
    file.write_tick(BEGIN // 10 + TICKS - 1)
    return file


def rows(file: WindowFile) -> dict[TrackKey, tuple[list[float], bytes, object, object]]:
    tracks = {slot.key: Track(slot, 0, same_boot=True) for slot in file}
    return {
        key: (list(each.row()), each.details.row(), each.slot.load(), each.histories())
        for key, each in tracks.items()
    }


def older_series(memory: memoryview) -> bytes:
    floats, covered, codes = split(memory)
    return floats.tobytes() + DayCodes(codes).all().tobytes() + covered.tobytes()


def older_details(memory: memoryview) -> bytes:
    head = 2 * (4 + 2 * 18)
    since, rest = memory[8 : 8 + 4 * 17], memory[head : head + 2 * 936 * 17]
    return memory[:4].tobytes() + since.tobytes() + rest.tobytes()


def older_slot(slot: TrackSlot) -> bytes:
    size = series_memory.SIZE
    series = [older_series(slot.memory[at : at + size]) for at in (256, 256 + size)]
    details = older_details(slot.memory[256 + 2 * size :])
    return b"".join([slot.memory[:256], *series, details])


def as_older(file: WindowFile, boot: bytes = b"boot-1", slot_bytes: int = OLD_SLOT) -> bytes:
    """The same content in layout 4."""
    head = struct.pack("<8sIII36sQ", b"KEDGSTAT", 4, slot_bytes, PIECE, boot, file.tick)
    times = [array("q", bytes(8 * OLD_SLOTS)) for _ in range(2)]
    ats = array("d", bytes(8 * OLD_SLOTS))
    minutes = [array("f", [-1.0]) * (MINUTE * OLD_SLOTS) for _ in range(2)]
    body = bytearray(OLD_SLOTS * OLD_SLOT)
    for place, slot in enumerate(file):
        columns, mine = slot.columns, slot.place
        times[0][place], times[1][place] = columns.second[mine], columns.counter[mine]
        ats[place] = columns.at[mine]
        for minute, column in zip(minutes, (columns.cpu, columns.memory), strict=True):
            minute[place::OLD_SLOTS] = array("f", column[mine::SLOTS].tolist())
        body[place * OLD_SLOT : (place + 1) * OLD_SLOT] = older_slot(slot)
    piece = b"".join([*times, ats, *minutes, body])
    return head.ljust(HEADER, b"\0") + piece.ljust(PIECE, b"\0")


def test_every_window_says_what_it_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = filled(tmp_path / "new")
    (tmp_path / "usage").write_bytes(as_older(file))
    taken = WindowFile(tmp_path / "usage", "boot-1")
    expected = rows(WindowFile(tmp_path / "new", "boot-1"))
    assert len(expected) == 2
    assert all(len(row) == 6 * len(WINDOWS) and min(row) >= 0 for row, *_ in expected.values())
    assert rows(taken) == expected
    assert (taken.tick, taken.same_boot) == (file.tick, True)
    assert "usage of an earlier release was taken over things=2" in caplog.text
    assert "set aside" not in caplog.text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new", "usage"]
    # And the next agent continues with it.
    assert rows(WindowFile(tmp_path / "usage", "boot-1")) == expected
    assert not WindowFile(tmp_path / "usage", "boot-2").same_boot


def test_an_agent_that_is_killed_meanwhile_costs_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = filled(tmp_path / "new")
    (tmp_path / "usage").write_bytes(as_older(file))
    with monkeypatch.context() as patched:
        taken: list[TrackSlot] = []

        def killed(slot: TrackSlot, older: object) -> None:
            if taken:
                raise KeyboardInterrupt
            taken.append(slot)

        patched.setattr(TrackSlot, "take_in", killed)
        with pytest.raises(KeyboardInterrupt):
            WindowFile(tmp_path / "usage", "boot-1")
    expected = rows(WindowFile(tmp_path / "new", "boot-1"))
    assert rows(WindowFile(tmp_path / "usage", "boot-1")) == expected
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new", "usage"]


def test_a_full_disk_leaves_the_history_to_a_later_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = filled(tmp_path / "new")
    (tmp_path / "usage").write_bytes(as_older(file))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        assert list(WindowFile(tmp_path / "usage", "boot-1")) == []
    assert rows(WindowFile(tmp_path / "usage", "boot-1")) == rows(
        WindowFile(tmp_path / "new", "boot-1")
    )


def test_details_that_were_never_written_have_no_mark(tmp_path: Path) -> None:
    file = filled(tmp_path / "new")
    (tmp_path / "usage").write_bytes(as_older(file))
    (slot, _) = WindowFile(tmp_path / "usage", "boot-1")
    memory = slot.memory[-detail_windows.SIZE :]
    assert int.from_bytes(memory[4:8], "little") == 1 << 3
    assert DetailWindows(memory).tick == file.tick


def test_a_slot_that_is_torn_is_left_out(tmp_path: Path) -> None:
    written = bytearray(as_older(filled(tmp_path / "new")))
    first = HEADER + OLD_SLOTS * (2 * 4 * MINUTE + 3 * 8)
    written[first + 1000 : first + 1004] = b"\xff" * 4
    (tmp_path / "usage").write_bytes(written)
    assert [slot.key.uid for slot in WindowFile(tmp_path / "usage", "boot-1")] == ["uid-1"]


def test_a_file_of_other_sizes_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "usage").write_bytes(as_older(filled(tmp_path / "new"), slot_bytes=80_000))
    assert list(WindowFile(tmp_path / "usage", "boot-1")) == []
    assert "set aside" in caplog.text
    assert (tmp_path / "usage.aside").exists()
