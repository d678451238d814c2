from pathlib import Path

import pytest

from kedge.node.runtime.cri import log_rotation


def test_the_oldest_files_of_a_log_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rotation, "MOST_BYTES", 3)
    log = tmp_path / "0.log"
    assert not log_rotation.needs_rotation(str(log))
    for number in range(7):
        log.write_text(f"part {number}")
        assert log_rotation.needs_rotation(str(log))
        log_rotation.rotate(str(log), 1_800_000_000_000_000_000 + number)
    kept = sorted(each.read_text() for each in tmp_path.iterdir())
    assert kept == ["part 3", "part 4", "part 5", "part 6"]
    log.write_text("now")
    log_rotation.remove(str(log))
    log_rotation.remove("")
    assert [*tmp_path.iterdir()] == []
