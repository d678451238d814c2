import os
import select
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.kernel import descriptors
from kedge.supervisor.plain import prepared_root, shared_directories
from kedge.supervisor.spec import BindMount


def bind(source: Path, target: str) -> BindMount:
    whole: Any = {"source": str(source), "part": "", "target": target, "read_only": False}
    found: BindMount = whole
    return found


class Mounted:
    """A container with a root, and a volume at /data."""

    def __init__(self, tmp_path: Path, name: str, volume: Path, *more: BindMount) -> None:
        layer = tmp_path / "layer"
        (layer / "bin").mkdir(parents=True, exist_ok=True)
        self.directory = tmp_path / "containers" / name
        self.directory.mkdir(parents=True)
        spec: Any = {"lowers": [str(layer)], "binds": [bind(volume, "/data"), *more]}
        prepared_root.make(spec, str(self.directory / "copy"), print)
        self.data = self.directory / "copy" / "data"

    def start(self) -> tuple[int, int]:
        """Share the directories in a child; returns its pid and the pipe that ends it."""
        until, pipe = os.pipe()
        if (pid := os.fork()) == 0:
            # As the launcher does: a child keeps no pipe of another one open.
            descriptors.keep_only({0, 1, 2, until})
            shared_directories.share(str(self.directory), until)
        os.close(until)
        return pid, pipe


def end(child: tuple[int, int], *, orderly: bool = True) -> int:
    pid, pipe = child
    if orderly:
        os.write(pipe, b"1")
    os.close(pipe)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    made = tmp_path / "volume"
    made.mkdir()
    (made / "kept").write_text("before")
    return made


def appears(path: Path) -> None:
    """Wait for a file; a test that waits in vain runs into its time limit."""
    while not path.exists():
        select.select([], [], [], 0.001)


def test_containers_see_each_others_files(tmp_path: Path, volume: Path) -> None:
    one, two = Mounted(tmp_path, "one", volume), Mounted(tmp_path, "two", volume)
    assert (one.data / "kept").read_text() == "before"
    children = [one.start(), two.start()]
    (one.data / "inner").mkdir()
    (one.data / "inner" / "file").write_text("from one")
    appears(two.data / "inner" / "file")
    (two.data / "inner" / "file").write_text("from two")
    assert (volume / "inner" / "file").read_text() == "from two"
    assert [end(each) for each in children] == [0, 0]


def test_what_was_written_last_is_there_after_the_end(tmp_path: Path, volume: Path) -> None:
    container = Mounted(tmp_path, "one", volume)
    child = container.start()
    (container.data / "last").write_text("words")
    (container.data / "kept").unlink()
    assert end(child) == 0
    assert [(each.name, each.read_text()) for each in volume.iterdir()] == [("last", "words")]
    assert list(shared_directories.pending(str(tmp_path / "containers"))) == []


def test_a_container_that_outlives_its_supervisor_is_merged_by_the_next(
    tmp_path: Path, volume: Path
) -> None:
    container = Mounted(tmp_path, "one", volume)
    child = container.start()
    (container.data / "first").touch()
    assert end(child, orderly=False) == 0
    assert (volume / "first").exists()
    (container.data / "second").touch()
    (left,) = shared_directories.pending(str(tmp_path / "containers"))
    shared_directories.finish(left)
    assert (volume / "second").exists()


def test_what_a_dead_supervisor_left_is_merged_by_the_next(tmp_path: Path, volume: Path) -> None:
    container = Mounted(tmp_path, "one", volume)
    (container.data / "last").write_text("words")
    (left,) = shared_directories.pending(str(tmp_path / "containers"))
    shared_directories.finish(left)
    assert (volume / "last").read_text() == "words"
    assert list(shared_directories.pending(str(tmp_path / "containers"))) == []
    # A second time, and without the container, there is nothing to do.
    shared_directories.finish(left)
    shared_directories.finish(str(tmp_path / "none"))


def test_a_volume_that_is_gone_has_nothing_to_keep(tmp_path: Path, volume: Path) -> None:
    container = Mounted(tmp_path, "one", volume)
    (volume / "kept").unlink()
    volume.rmdir()
    shared_directories.finish(str(container.directory))
    assert not volume.exists()


def test_a_volume_inside_of_another_keeps_its_files(tmp_path: Path, volume: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    container = Mounted(tmp_path, "one", volume, bind(inner, "/data/inner"))
    (container.data / "inner" / "file").touch()
    shared_directories.finish(str(container.directory))
    assert os.listdir(inner) == ["file"]
    assert not (volume / "inner" / "file").exists()


def test_too_many_levels_end_the_child_with_a_reason(tmp_path: Path, volume: Path) -> None:
    container = Mounted(tmp_path, "one", volume)
    deep = container.data / "/".join("d" * 70)
    deep.mkdir(parents=True)
    code = end(container.start())
    assert shared_directories.reason_of(code) == "file name too long"
    assert "50000 files" in shared_directories.reason_of(27)
    assert "killed" in shared_directories.reason_of(-9)
