"""The administrator's token on disk."""

import stat
from pathlib import Path

from kedge.apiserver import tokens


def test_the_token_is_made_once_and_kept(tmp_path: Path) -> None:
    first = tokens.ensure(tmp_path / "state" / "token")
    assert len(first) >= 40
    assert tokens.ensure(tmp_path / "state" / "token") == first


def test_two_clusters_have_different_tokens(tmp_path: Path) -> None:
    assert tokens.ensure(tmp_path / "a") != tokens.ensure(tmp_path / "b")


def test_a_token_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    path.chmod(0o644)
    assert tokens.ensure(path) == "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_empty_token_is_no_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch()
    assert tokens.ensure(path) != ""
