"""Volumes in memory: their options, and requests that are refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kedge.supervisor import memory_volumes, subordinate_ids
from kedge.supervisor.kernel import libc
from kedge.supervisor.server import RequestError


class MountRequest(SimpleNamespace):
    """A request that counts its answers."""

    def __init__(self, **message: Any) -> None:
        super().__init__(message=message, answers=0)

    def answer(self) -> None:
        self.answers += 1


@pytest.mark.parametrize(
    ("size", "mode", "group", "expected"),
    [
        (0, 0o1777, -1, "mode=1777"),
        (1024, 0o3777, 7, "mode=3777,size=1024,gid=7"),
        (1024, 0o3777, 99_999, "mode=3777,size=1024"),
        (0, 0o7_001_777, -1, "mode=1777"),
    ],
)
def test_the_options_have_a_group_that_the_namespace_has(
    size: int, mode: int, group: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subordinate_ids, "are_present", lambda _, group: group == 7)
    assert memory_volumes.options(size, mode, group) == expected


def test_it_is_mounted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(libc, "mount", lambda *arguments: mounted.append(arguments))
    call: Any = MountRequest(place=str(tmp_path), size=5, mode=0o777, group=-1)
    memory_volumes.mount(call)
    safe = libc.MS_NOSUID | libc.MS_NODEV
    assert mounted == [("tmpfs", str(tmp_path), "tmpfs", safe, "mode=777,size=5")]
    monkeypatch.setattr(memory_volumes, "is_mounted", lambda _: True)
    memory_volumes.mount(call)
    assert (len(mounted), call.answers) == (1, 2)


def test_proc_is_a_mount_and_a_new_directory_is_none(tmp_path: Path) -> None:
    assert memory_volumes.is_mounted("/proc")
    assert not memory_volumes.is_mounted(str(tmp_path))


@pytest.mark.parametrize("place", ["relative", "/missing/place"])
def test_only_a_directory_is_mounted_on(place: str) -> None:
    call: Any = MountRequest(place=place, size=0, mode=0, group=-1)
    with pytest.raises(RequestError, match="not a directory"):
        memory_volumes.mount(call)
