"""Disk usage of directories, readable and not."""

import os
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.files import tree_usage

KI = 1024


def test_files_count_once(tmp_path: Path) -> None:
    empty = tree_usage.disk_usage([str(tmp_path)])
    (tmp_path / "file").write_bytes(bytes(64 * KI))
    os.link(tmp_path / "file", tmp_path / "again")
    found = tree_usage.disk_usage([str(tmp_path), str(tmp_path / "missing")])
    assert found.used - empty.used == 64 * KI
    assert found.is_complete


def test_a_directory_that_refuses_makes_it_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "open").mkdir()
    real = os.open

    def refusing(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "shut":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)
    assert not tree_usage.disk_usage([str(tmp_path)]).is_complete
