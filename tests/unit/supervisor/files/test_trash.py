from pathlib import Path

import pytest

from kedge.supervisor.files import trash
from kedge.supervisor.files.trash import Trash
from kedge.supervisor.loop import EventLoop


def filled(tmp_path: Path) -> Path:
    (tmp_path / "one" / "inner").mkdir(parents=True)
    (tmp_path / "two").touch()
    return tmp_path


def test_a_process_of_its_own_empties_the_trash(event_loop: EventLoop, tmp_path: Path) -> None:
    Trash(str(filled(tmp_path)), event_loop).empty()
    [pid] = event_loop.children
    event_loop.when_alone(event_loop.stop, 60)
    event_loop.run()
    assert pid
    assert list(tmp_path.iterdir()) == []


def test_empty_trash_needs_no_process(event_loop: EventLoop, tmp_path: Path) -> None:
    emptying = Trash(str(tmp_path), event_loop)
    emptying.empty()
    emptying.wait()
    assert event_loop.children == []


def test_a_shutdown_removes_what_there_is_time_for(event_loop: EventLoop, tmp_path: Path) -> None:
    Trash(str(filled(tmp_path)), event_loop).empty_now(lambda: False)
    assert list(tmp_path.iterdir()) == []


def test_attempts_back_off(
    event_loop: EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    monkeypatch.setattr(event_loop, "after", lambda seconds, _: delays.append(seconds))
    emptying = Trash(str(tmp_path), event_loop)
    for _ in range(15):
        emptying._timer = None
        emptying._retry()
    assert delays[:3] == [0.2, 0.4, 0.8]
    assert delays[-1] == trash._MAX_DELAY_SECONDS
