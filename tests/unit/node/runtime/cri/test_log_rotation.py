from pathlib import Path

import pytest

from kedge.node.runtime.cri import log_rotation
from kedge.node.runtime.runtime import RuntimeFailure


def test_the_oldest_files_of_a_log_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rotation, "MOST_BYTES", 3)
    log = tmp_path / "0.log"
    assert not log_rotation.needs_rotation(str(log))
    for number in range(7):
        log.write_text(f"part {number}")
        assert log_rotation.needs_rotation(str(log))
        log_rotation.rotate(str(log), 1_800_000_000_000_000_000 + number)
        log_rotation.remove_oldest(str(log))
    kept = sorted(each.read_text() for each in tmp_path.iterdir())
    assert kept == ["part 3", "part 4", "part 5", "part 6"]
    log.write_text("now")
    log_rotation.remove(str(log))
    log_rotation.remove("")
    assert [*tmp_path.iterdir()] == []


def test_the_directory_of_a_log_is_made(tmp_path: Path) -> None:
    for _ in range(2):
        log_rotation.make_directory(str(tmp_path / "pod" / "main" / "0.log"))
    assert [*(tmp_path / "pod" / "main").iterdir()] == []
    log_rotation.make_directory("")
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeFailure, match=r"cannot make the directory of the log .*file/0\.log"):
        log_rotation.make_directory(str(tmp_path / "file" / "0.log"))


def test_a_log_gets_its_name_back_unless_there_is_a_new_one(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text("old")
    log_rotation.undo(str(log), log_rotation.rotate(str(log), 1))
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]
    renamed = log_rotation.rotate(str(log), 2)
    log.write_text("new")
    log_rotation.undo(str(log), renamed)
    assert (log.read_text(), Path(renamed).read_text()) == ("new", "old")
