"""Where clusters and settings are looked for."""

from argparse import Namespace
from pathlib import Path

import pytest

from kedge.cli.config.settings import Settings
from kedge.cli.main import parser


def flags(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


def test_without_a_state_home_root_and_users_have_places_of_their_own(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del environment["XDG_STATE_HOME"]
    source = Settings(flags("list"), environment)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert source.root() == tmp_path / ".local" / "state" / "kedge"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert source.root() == Path("/var/lib/kedge")


def test_a_relative_state_home_is_ignored(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clusters would be found again in one working directory only."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for value in ("states", "./states", ""):
        environment["XDG_STATE_HOME"] = value
        assert Settings(flags("list"), environment).root() == Path("/var/lib/kedge")
