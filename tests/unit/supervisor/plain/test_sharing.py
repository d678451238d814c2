import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from kedge.supervisor.plain.shared_directories import PENDING
from kedge.supervisor.plain.sharing import Sharing


class FakeLoop:
    """Ends children by hand."""

    def __init__(self) -> None:
        self.children: list[Callable[..., None]] = []

    def child(self, pid: int, callback: Callable[..., None]) -> None:
        self.children.append(callback)


class FakeLauncher:
    def __init__(self) -> None:
        self.forked: list[str] = []
        self.is_gone = False

    def fork(self, entry: str, arguments: tuple[Any, ...], descriptors: object) -> int:
        if self.is_gone:
            raise OSError(10, "gone")
        self.forked.append(entry)
        return 7


class Container:
    def __init__(self, directory: Path, *, is_pending: bool = True) -> None:
        self.directory = str(directory)
        self.alive = True
        self.excess = ""
        if is_pending:
            (directory / PENDING).touch()

    def exceed(self, reason: str, message: str) -> None:
        self.excess = message


def sharing() -> tuple[Sharing, FakeLoop, FakeLauncher]:
    loop, launcher = FakeLoop(), FakeLauncher()
    return Sharing(cast(Any, loop), cast(Any, launcher)), loop, launcher


def test_the_end_of_a_container_waits_for_the_last_merge(tmp_path: Path) -> None:
    shares, loop, launcher = sharing()
    container, heard = Container(tmp_path), list[str]()
    shares.follow(container)
    assert launcher.forked == ["share"]
    container.alive = False
    shares.settle(container.directory, heard.append)
    assert heard == []
    loop.children.pop()(0, None)
    assert (heard, container.excess) == ([""], "")


def test_a_container_without_shared_directories_waits_for_nothing(tmp_path: Path) -> None:
    shares, _, launcher = sharing()
    container, heard = Container(tmp_path, is_pending=False), list[str]()
    shares.follow(container)
    shares.settle(container.directory, heard.append)
    assert (launcher.forked, heard) == ([], [""])


def test_a_container_whose_program_never_ran_is_settled_too(tmp_path: Path) -> None:
    shares, loop, launcher = sharing()
    heard = list[str]()
    shares.settle(Container(tmp_path).directory, heard.append)
    assert (launcher.forked, heard) == (["share"], [])
    loop.children.pop()(0, None)
    assert heard == [""]


def test_a_container_that_can_no_longer_share_is_killed_with_the_reason(tmp_path: Path) -> None:
    shares, loop, _ = sharing()
    container = Container(tmp_path)
    shares.follow(container)
    loop.children.pop()(27 << 8, None)
    assert "its volumes cannot be shared any longer: one has more than" in container.excess


def test_without_a_launcher_the_next_supervisor_merges(tmp_path: Path) -> None:
    shares, _, launcher = sharing()
    launcher.is_gone = True
    heard = list[str]()
    before = len(os.listdir("/proc/self/fd"))
    shares.settle(Container(tmp_path).directory, heard.append)
    assert heard == [""]
    assert len(os.listdir("/proc/self/fd")) == before
