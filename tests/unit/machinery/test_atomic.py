import os
from pathlib import Path

import pytest

from kedge.machinery import atomic


def test_a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    atomic.write(path, b"new", mode=0o640)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["key"]


def test_the_disk_has_the_content_before_the_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    seen: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        atomic, "_SYNC", [lambda file: seen.append((os.fstat(file).st_size, path.exists()))]
    )
    atomic.write(path, b"new")
    assert seen == [(3, False)]


def test_a_process_whose_files_are_thrown_away_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(atomic, "_SYNC", [synced.append])
    atomic.forgo_sync()
    atomic.write(tmp_path / "key", b"new")
    assert (tmp_path / "key").read_bytes() == b"new"
    assert synced == []
