from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver.configuration_file import LARGEST_FILE, ConfigurationFileError, read


def same(document: Any) -> Any:
    return document


def test_the_document_is_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a: [1]")
    assert read(path, same) == {"a": [1]}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFileError, match=r"cannot read '.*/file': No such file"):
        read(tmp_path / "file", same)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b" " * (LARGEST_FILE + 1))
    with pytest.raises(ConfigurationFileError, match="larger than"):
        read(path, same)
