"""Work on files of subordinate ids: here the process that does it is this one, or is not there."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.files import mapped, removal
from kedge.supervisor.files.mapped import FileOwner


class Worker:
    """Stands for the process in the user namespace."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, ...]] = []

    def run(self, *arguments: str) -> Any:
        self.asked.append(arguments)
        return self.answer


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    found = Worker("")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(mapped, "is_available", lambda: True)
    monkeypatch.setattr(mapped, "_run", found.run)
    return found


def test_only_what_is_left_takes_the_other_process(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    assert removal.remove_all(tmp_path / "mine") == ""
    assert worker.asked == []
    monkeypatch.setattr(removal, "remove", lambda _: "data: Permission denied")
    assert removal.remove_all(tmp_path / "theirs") == ""
    assert worker.asked == [("remove", str(tmp_path / "theirs"))]


def test_without_namespaces_the_reason_stays(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.answer = None
    monkeypatch.setattr(removal, "remove", lambda _: "data: Permission denied")
    assert removal.remove_all("/x") == "data: Permission denied"
    assert mapped.own([]) is False
    assert mapped.give("/x", 1) is False
    assert mapped.usage(["/x"]) is None


def test_failures_of_the_other_process_are_raised(worker: Worker) -> None:
    worker.answer = "it is gone"
    with pytest.raises(PermissionError, match="it is gone"):
        mapped.own([FileOwner("/x", 1, 2, 0o600)])
    with pytest.raises(PermissionError, match="it is gone"):
        mapped.give("/x", 1)


def test_nothing_starts_for_who_has_no_grant(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "is_available", lambda: False)
    assert mapped.own([FileOwner("/x", 1, 2, 0o600)]) is False
    assert mapped.usage(["/x"]) is None
    assert worker.asked == []


def work(monkeypatch: pytest.MonkeyPatch, capsys: Any, *arguments: str) -> Any:
    monkeypatch.setattr(mapped, "enter", lambda: True)
    mapped.main(arguments)
    return json.loads(capsys.readouterr().out)


def test_the_process_gives_owner_then_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file = tmp_path / "file"
    file.touch()
    owner = FileOwner(str(file), os.getuid(), os.getgid(), 0o2750)
    assert work(monkeypatch, capsys, "own", json.dumps([owner])) == ""
    assert stat.S_IMODE(file.stat().st_mode) == 0o2750


def test_the_process_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch(0o600)
    link.symlink_to(target)
    owner = FileOwner(str(link), -1, -1, 0o777)
    assert "not supported" in work(monkeypatch, capsys, "own", json.dumps([owner]))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    missing = FileOwner(str(tmp_path / "missing"), -1, -1, 0o777)
    assert "No such file" in work(monkeypatch, capsys, "own", json.dumps([missing]))


def test_the_process_removes_measures_and_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(bytes(65_536))
    assert work(monkeypatch, capsys, "usage", str(tree)) >= 65_536
    assert work(monkeypatch, capsys, "give", str(tree), str(os.getgid())) == ""
    assert stat.S_IMODE((tree / "file").stat().st_mode) & 0o660 == 0o660
    assert work(monkeypatch, capsys, "remove", str(tree)) == ""
    assert not tree.exists()


def test_without_a_namespace_the_process_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(mapped, "enter", lambda: False)
    mapped.main(["remove", str(tmp_path)])
    assert capsys.readouterr().out == ""
    assert tmp_path.exists()
