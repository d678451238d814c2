"""A setting is declared once: its flag, its variable and a child's command line follow."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from kedge.apiserver.config import ServerConfig
from kedge.node.config import Invitation, NodeConfig
from kedge.settings import values
from kedge.settings.setting import Setting, arguments, bound_settings, declared


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    quiet: Annotated[bool, Setting("quiet", values.SWITCH, "say nothing", default="no")] = False


class Config(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Setting("max-things", values.COUNT, "number of things")] = 7
    inner: Inner = Inner()
    names: Annotated[
        tuple[str, ...],
        Setting("names", values.LIST, "names"),
        Setting("more-names", values.LIST, "further names"),
    ] = ()
    paths: Annotated[tuple[Path, ...], Setting("path", values.PATHS, "a path")] = ()
    unset: str = ""


def test_the_flag_and_the_variable_follow_from_the_name() -> None:
    setting = declared(Config, "limit")
    assert (setting.flag, setting.variable) == ("--max-things", "KEDGE_MAX_THINGS")
    assert setting._replace(only_flag=True).variable == ""


def test_the_settings_of_a_configuration_include_nested_ones_and_their_defaults() -> None:
    found = {each.setting.name: each.default_text for each in bound_settings(Config)}
    assert found == {"max-things": "7", "quiet": "no", "names": "", "more-names": "", "path": ""}


def test_a_child_gets_every_field_and_not_the_settings_that_change_a_default() -> None:
    config = Config(inner=Inner(quiet=True), names=("a", "b"), paths=(Path("/x"), Path("/y")))
    expected = ["--max-things=7", "--quiet", "--names=a,b", "--path=/x", "--path=/y"]
    assert arguments(config) == expected
    assert "--no-quiet" in arguments(Config())


@pytest.mark.parametrize(
    ("seconds", "text"), [(10, "10s"), (60, "1m"), (7200, "2h"), (90.0, "90s"), (0.5, "0.5s")]
)
def test_a_duration_survives_being_written(seconds: float, text: str) -> None:
    written = values.SECONDS.text(seconds)
    assert values.SECONDS.parse(written) == seconds
    assert written.rstrip("s").rstrip("0") == text.rstrip("s").rstrip("0")


@pytest.mark.parametrize("config", [ServerConfig, NodeConfig, Invitation])
def test_a_help_text_is_a_phrase_and_not_a_sentence(config: type[msgspec.Struct]) -> None:
    for each in bound_settings(config):
        assert each.setting.help
        assert not each.setting.help.endswith(".")


def test_one_name_has_one_type() -> None:
    kinds: dict[str, object] = {}
    for config in (ServerConfig, NodeConfig, Invitation):
        for each in bound_settings(config):
            name = each.setting.name
            assert kinds.setdefault(name, each.setting.type) == each.setting.type
