"""The static token file, good and bad."""

import logging
from pathlib import Path

import pytest

from kedge.apiserver.authentication.token_file import TokenFileError, read
from kedge.apiserver.request import User


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tokens.csv"
    path.write_text(text)
    return path


def test_lines_hold_token_name_uid_and_groups(tmp_path: Path) -> None:
    path = written(tmp_path, 'abc,jane,7,"devs,ops"\n\ndef,joe,8,solo\nghi,jim,9\n')
    assert read(path) == {
        "abc": User("jane", ("devs", "ops"), "7"),
        "def": User("joe", ("solo",), "8"),
        "ghi": User("jim", (), "9"),
    }


def test_an_empty_file_holds_nobody(tmp_path: Path) -> None:
    assert read(written(tmp_path, "")) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("abc,jane\n", "must have at least 3 columns .*, found 2 in record 1"),
        ("x,y,z\ns3cret\n", "found 1 in record 2"),
        ('s3cret,"jane,7\n', "is no CSV file"),
        ('s3cret,"jane"x,7\n', "is no CSV file"),
    ],
)
def test_a_malformed_file_is_refused_without_quoting_it(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(TokenFileError, match=complaint) as refused:
        read(written(tmp_path, text))
    assert "s3cret" not in str(refused.value)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match="No such file"):
        read(tmp_path / "none.csv")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_bytes(b"\xff\xfe,a,b\n")
    with pytest.raises(TokenFileError, match="is no CSV file"):
        read(path)


def test_empty_and_repeated_tokens_are_told_by_their_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        users = read(written(tmp_path, ",nobody,0\ns3cret,a,1\ns3cret,b,2\n"))
    assert users == {"s3cret": User("b", (), "2")}
    assert "record=1" in caplog.text
    assert "record=3" in caplog.text
    assert "s3cret" not in caplog.text
