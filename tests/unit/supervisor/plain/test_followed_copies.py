from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from kedge.supervisor.plain.followed_copies import FollowedCopies


class FakeLoop:
    """Runs timers and ends children by hand."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []
        self.children: list[Callable[..., None]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append(callback)

    def child(self, pid: int, callback: Callable[..., None]) -> None:
        self.children.append(callback)

    def tick(self) -> None:
        due, self.timers = self.timers, []
        for each in due:
            each()


class FakeLauncher:
    def __init__(self) -> None:
        self.forked: list[tuple[str, tuple[Any, ...]]] = []

    def fork(self, entry: str, arguments: tuple[Any, ...], descriptors: object) -> int:
        self.forked.append((entry, arguments))
        return 7


class Running:
    alive = True


def test_changed_volumes_are_copied_by_one_child_at_a_time(tmp_path: Path) -> None:
    loop, launcher, container = FakeLoop(), FakeLauncher(), Running()
    link = tmp_path / "..data"
    link.symlink_to("..1")
    bind: Any = {"source": str(tmp_path), "target": "/data"}
    FollowedCopies(cast(Any, loop), cast(Any, launcher)).follow(container, "/root", [bind])
    loop.tick()
    assert launcher.forked == []
    link.unlink()
    link.symlink_to("..2")
    loop.tick()
    assert launcher.forked == [("refresh", ("/root", [bind]))]
    assert loop.timers == []
    loop.children.pop()(0, None)
    loop.tick()
    assert len(launcher.forked) == 1
    container.alive = False
    loop.tick()
    assert loop.timers == []


def test_without_volumes_there_is_nothing_to_follow() -> None:
    loop = FakeLoop()
    FollowedCopies(cast(Any, loop), cast(Any, FakeLauncher())).follow(Running(), "/root", [])
    assert loop.timers == []
