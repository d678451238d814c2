import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.supervisor.launch import program
from kedge.supervisor.launch.program import LaunchError


def spec(*argv: str, path: str = "/bin:/usr/bin", directory: str = "/") -> Any:
    return {"argv": list(argv), "env": ["A=B", f"PATH={path}"], "directory": directory}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "tool").chmod(0o755)
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    before = os.getcwd()
    yield descriptor
    os.chdir(before)
    os.close(descriptor)


def test_candidates_come_in_the_order_of_path() -> None:
    assert program.candidates(spec("tool", path="/a::/b")) == ["/a/tool", "./tool", "/b/tool"]
    assert program.candidates(spec("./tool")) == ["./tool"]


def test_only_existing_candidates_are_admitted(root: int) -> None:
    assert program.admitted(root, spec("tool", path="/sbin:/bin")) == ["/bin/tool"]
    assert program.admitted(root, spec("none")) == []


def test_a_path_without_a_program_is_refused_in_the_words_of_go(root: int) -> None:
    with pytest.raises(LaunchError, match='exec: "/none": stat /none: no such file or directory'):
        program.admitted(root, spec("/none"))


@pytest.mark.parametrize("target", ["/proc/self/exe", "/proc/self/fd/0"])
def test_magic_links_are_refused(target: str) -> None:
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(LaunchError, match="magic link"):
            program.admitted(root, spec(target))
    finally:
        os.close(root)


def test_a_program_must_be_an_executable_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch(mode=0o644)
    (tmp_path / "directory").mkdir()
    with pytest.raises(LaunchError, match="permission denied"):
        program.find(str(tmp_path / "plain"), [])
    with pytest.raises(LaunchError, match="is a directory"):
        program.find(str(tmp_path / "directory"), [])
    with pytest.raises(LaunchError, match=r"executable file not found in \$PATH"):
        program.find("plain", [str(tmp_path / "plain")])


def test_the_working_directory_is_found_inside_the_root(root: int, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/bin")
    assert program.enter_directory(root, "/link")
    assert os.getcwd() == str(tmp_path / "bin")


@pytest.mark.parametrize("path", ["/proc/self/fd/{}", "/proc/self/cwd"])
def test_a_working_directory_behind_a_magic_link_is_refused(path: str, tmp_path: Path) -> None:
    held = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(LaunchError, match="working directory"):
            program.enter_directory(root, path.format(held))
    finally:
        os.close(held)
        os.close(root)
