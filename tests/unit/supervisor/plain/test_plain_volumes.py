import os
from pathlib import Path
from typing import Any, cast

import pytest

from kedge.supervisor.plain.plain_volumes import PlainVolumes


class Timers:
    """An event loop that only counts timers."""

    def __init__(self) -> None:
        self.started = 0

    def after(self, seconds: float, callback: object) -> None:
        self.started += 1


class Container:
    alive = True
    exceed: Any = None

    def __init__(self, directory: Path, *binds: dict[str, Any], lowers: list[str]) -> None:
        directory.mkdir()
        self.directory = str(directory)
        self.spec: Any = {"binds": list(binds), "lowers": lowers}
        self.notes: list[str] = []

    def note(self, *shortfalls: str) -> None:
        self.notes += shortfalls


def bind(target: Path | str, source: Path | str = "/", *, read_only: bool = False) -> Any:
    return {"target": str(target), "source": str(source), "part": "", "read_only": read_only}


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def volumes(tmp_path: Path, timers: Timers) -> PlainVolumes:
    return PlainVolumes(cast(Any, timers), cast(Any, None), str(tmp_path / "register"))


def test_mount_paths_are_linked_while_a_container_needs_them(
    volumes: PlainVolumes, tmp_path: Path
) -> None:
    container = Container(tmp_path / "c", bind(tmp_path / "data"), lowers=[])
    assert volumes.link(container).keys() == {str(tmp_path / "data")}
    assert (tmp_path / "data").is_symlink()
    assert container.notes == []
    volumes.release(container.directory)
    assert not (tmp_path / "data").is_symlink()


def test_a_volume_of_the_pod_needs_its_path(volumes: PlainVolumes, tmp_path: Path) -> None:
    container = Container(tmp_path / "c", bind(tmp_path), lowers=[])
    with pytest.raises(OSError, match="is not mounted: the machine has a directory") as raised:
        volumes.link(container)
    assert "--cap-add=SYS_ADMIN" in str(raised.value)


def test_shortfalls_are_noted(volumes: PlainVolumes, tmp_path: Path) -> None:
    files = (bind("/etc/hosts"), bind(tmp_path / "data", read_only=True))
    container = Container(tmp_path / "c", *files, lowers=[])
    volumes.link(container)
    assert container.notes == [
        "its read-only volumes can be written to: this machine allows no mounts",
        "it sees the machine's own /etc/hosts",
    ]
    volumes.release_below(str(tmp_path))
    assert not (tmp_path / "data").is_symlink()


def test_a_container_with_a_root_of_its_own_has_copies(
    volumes: PlainVolumes, tmp_path: Path, timers: Timers
) -> None:
    (tmp_path / "volume").mkdir()
    mount = bind("/data", tmp_path / "volume", read_only=True)
    container = Container(tmp_path / "c", mount, lowers=["/layer"])
    assert volumes.link(container) == {}
    volumes.follow(container)
    assert timers.started == 0
    os.symlink("..1", tmp_path / "volume" / "..data")
    volumes.follow(container)
    assert timers.started == 1
