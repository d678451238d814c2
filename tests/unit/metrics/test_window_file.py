"""What is kept of usage: by name, over restarts, and whatever happens to its file."""

import errno
import logging
import mmap
import os
import signal
from pathlib import Path

import pytest

from kedge.metrics.window_file import SLOT_BYTES, TrackKey, TrackState, WindowFile


def told(store: WindowFile, key: TrackKey, value: float) -> None:
    """One tick."""
    series, _ = store.claim(key).series(0)
    for second in range(1, 11):
        series.add(second, value)
    series.close(1, value, 10.0)


def mean(store: WindowFile, key: TrackKey) -> float | None:
    slot = store.get(key)
    if slot is None:
        return None
    window = slot.series(1)[0].window("10s")
    return None if window is None else round(window.mean, 3)


def test_what_was_written_is_there_for_the_next_agent(tmp_path: Path) -> None:
    store = WindowFile(tmp_path / "usage", "boot-1")
    keys = [TrackKey(f"uid-{number}", "main") for number in range(50)]
    for number, key in enumerate(keys):
        told(store, key, number / 8)
    store.write_tick(7)
    store.close()
    again = WindowFile(tmp_path / "usage", "boot-1")
    assert [mean(again, key) for key in keys] == [number / 8 for number in range(50)]
    assert (again.tick, again.same_boot) == (7, True)
    assert {slot.key for slot in again} == set(keys)
    assert not WindowFile(tmp_path / "usage", "boot-2").same_boot


def test_slots_that_were_freed_are_used_again_and_know_nothing(tmp_path: Path) -> None:
    store = WindowFile(tmp_path / "usage", "b")
    for number in range(40):
        told(store, TrackKey(f"uid-{number}", "main"), 1.0)
    size = (tmp_path / "usage").stat().st_size
    for number in range(40):
        store.release(TrackKey(f"uid-{number}", "main"))
        store.claim(TrackKey(f"new-{number}", "main"))
    assert (tmp_path / "usage").stat().st_size == size
    assert mean(store, TrackKey("new-3", "main")) is None
    assert mean(WindowFile(tmp_path / "usage", "b"), TrackKey("uid-3", "main")) is None
    assert size < 50 * SLOT_BYTES + (1 << 20)


def test_an_agent_that_is_killed_loses_nothing_it_has_written(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        store = WindowFile(tmp_path / "usage", "b")
        told(store, TrackKey("uid", "main"), 0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert mean(WindowFile(tmp_path / "usage", "b"), TrackKey("uid", "main")) == 0.5


@pytest.mark.parametrize(
    "content", [b"something else", b"KEDGSTAT", b"KEDGSTAT" + b"\x09" * 70_000, bytes(70_000)]
)
def test_a_file_that_is_not_ours_is_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "usage").write_bytes(content)
    store = WindowFile(tmp_path / "usage", "b")
    told(store, TrackKey("uid", "main"), 0.5)
    assert (tmp_path / "usage.aside").read_bytes() == content
    assert "set aside" in caplog.text
    assert mean(WindowFile(tmp_path / "usage", "b"), TrackKey("uid", "main")) == 0.5


def test_a_file_that_ends_in_the_middle_of_a_piece_keeps_what_is_whole(tmp_path: Path) -> None:
    store = WindowFile(tmp_path / "usage", "b")
    told(store, TrackKey("uid", "main"), 0.5)
    with open(tmp_path / "usage", "ab") as file:
        file.write(b"\xff" * 5000)
    again = WindowFile(tmp_path / "usage", "b")
    assert mean(again, TrackKey("uid", "main")) == 0.5
    for number in range(30):
        told(again, TrackKey(f"more-{number}", "main"), 0.25)
    assert mean(WindowFile(tmp_path / "usage", "b"), TrackKey("more-29", "main")) == 0.25


def test_numbers_that_are_torn_are_begun_anew_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = WindowFile(tmp_path / "usage", "b")
    told(store, TrackKey("torn", "main"), 0.5)
    told(store, TrackKey("whole", "main"), 0.5)
    slot = store.get(TrackKey("torn", "main"))
    assert slot is not None
    slot.memory[1000:1004] = b"\xff\xff\xff\xff"
    again = WindowFile(tmp_path / "usage", "b")
    assert mean(again, TrackKey("torn", "main")) is None
    assert mean(again, TrackKey("whole", "main")) == 0.5
    assert "pod=torn container=main" in caplog.text


@pytest.mark.parametrize(
    "torn",
    [
        TrackState(since=1 << 40),
        TrackState(since=-1),
        TrackState(tick=1 << 50),
        TrackState(aside=float("nan")),
    ],
)
def test_a_state_that_nobody_can_have_left_is_begun_anew(tmp_path: Path, torn: TrackState) -> None:
    store = WindowFile(tmp_path / "usage", "b")
    for name in ("main", "side"):
        told(store, TrackKey("uid", name), 1.0)
    slot = store.get(TrackKey("uid", "main"))
    assert slot is not None
    slot.save(torn)
    again = WindowFile(tmp_path / "usage", "b")
    assert again.get(TrackKey("uid", "main")) is None
    assert mean(again, TrackKey("uid", "side")) == 1.0


def test_a_name_that_is_torn_makes_the_slot_a_free_one(tmp_path: Path) -> None:
    store = WindowFile(tmp_path / "usage", "b")
    told(store, TrackKey("uid", "main"), 0.5)
    slot = store.get(TrackKey("uid", "main"))
    assert slot is not None
    slot.memory[6] ^= 1
    assert list(WindowFile(tmp_path / "usage", "b")) == []


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_the_memory_of_new_pods_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = WindowFile(tmp_path / "usage", "b")
    told(store, TrackKey("old", "main"), 0.5)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        for number in range(40):
            told(store, TrackKey(f"new-{number}", "main"), 0.25)
    assert mean(store, TrackKey("new-39", "main")) == 0.25
    assert "No space left" in caplog.text
    again = WindowFile(tmp_path / "usage", "b")
    assert mean(again, TrackKey("old", "main")) == 0.5
    assert mean(again, TrackKey("new-39", "main")) is None


def test_a_disk_that_is_full_from_the_start_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = WindowFile(tmp_path / "usage", "b")
    told(store, TrackKey("old", "main"), 0.5)
    monkeypatch.setattr(os, "posix_fallocate", full)
    for path in ("usage", "other"):
        late = WindowFile(tmp_path / path, "b")
        told(late, TrackKey("new", "main"), 0.25)
        assert mean(late, TrackKey("new", "main")) == 0.25


def test_a_place_that_cannot_be_written_is_no_reason_to_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = WindowFile(tmp_path / "missing" / "usage", "b")
    told(store, TrackKey("new", "main"), 0.25)
    assert mean(store, TrackKey("new", "main")) == 0.25
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "usage").symlink_to(tmp_path / "elsewhere")
    store = WindowFile(tmp_path / "usage", "b")
    told(store, TrackKey("uid", "main"), 1.0)
    assert mean(store, TrackKey("uid", "main")) == 1.0
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_cannot_be_mapped_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mapped = mmap.mmap

    def unmappable(file: int, size: int) -> mmap.mmap:
        if file >= 0:
            raise OSError(errno.ENODEV, "No such device")
        return mapped(file, size)

    monkeypatch.setattr(mmap, "mmap", unmappable)
    store = WindowFile(tmp_path / "usage", "b")
    told(store, TrackKey("new", "main"), 0.25)
    assert mean(store, TrackKey("new", "main")) == 0.25
    assert "No such device" in caplog.text


def test_a_state_is_read_as_it_was_cleared(tmp_path: Path) -> None:
    slot = WindowFile(tmp_path / "usage", "b").claim(TrackKey("u" * 64, "c" * 63))
    assert slot.load() == TrackState()
    assert {each.key for each in WindowFile(tmp_path / "usage", "b")} == {slot.key}
