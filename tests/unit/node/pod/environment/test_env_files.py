import os
from pathlib import Path

import pytest

from kedge.api.core_v1.references import FileKeySelector
from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.pod.environment import env_files


def wanted(key: str, path: str = "vars", *, optional: bool = False) -> FileKeySelector:
    return FileKeySelector(volumeName="v", path=path, key=key, optional=optional)


def test_variables_are_quoted_and_may_go_over_lines(tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("# a comment\n\nA='1'\nB='two\nlines # not a comment'\nA='2'\n")
    assert env_files.lookup(wanted("A"), tmp_path) == "2"
    assert env_files.lookup(wanted("B"), tmp_path) == "two\nlines # not a comment"


@pytest.mark.parametrize("text", ["A=1\n", 'A="1"\n', "A='1\n", "just words\n", "A='1' B='2'\n"])
def test_anything_else_in_the_file_is_an_error(text: str) -> None:
    with pytest.raises(ConfigFailure, match="line 1 is not of the form"):
        env_files.parse(text)


def test_what_is_missing_is_named_unless_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("A='1'\n")
    with pytest.raises(ConfigFailure, match='"B" not found in file "vars"'):
        env_files.lookup(wanted("B"), tmp_path)
    with pytest.raises(ConfigFailure, match="no file other"):
        env_files.lookup(wanted("A", "other"), tmp_path)
    assert env_files.lookup(wanted("B", optional=True), tmp_path) is None
    assert env_files.lookup(wanted("A", "other", optional=True), tmp_path) is None


def test_link_out_of_the_volume_is_not_followed(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "vars").write_text("A='1'\n")
    (volume / "vars").symlink_to("../vars")
    with pytest.raises(ConfigFailure, match="leads out"):
        env_files.lookup(wanted("A"), volume)


def test_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("A='" + "x" * env_files.FILE_BYTES + "'\n")
    with pytest.raises(ConfigFailure, match="larger than"):
        env_files.lookup(wanted("A"), tmp_path)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "vars")
    with pytest.raises(ConfigFailure, match='env file "vars" is not a regular file'):
        env_files.lookup(wanted("A"), tmp_path)
