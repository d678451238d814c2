"""Settings in kedge.toml."""

from argparse import Namespace
from pathlib import Path

import pytest

from kedge.cli.config.file import known_settings, parse
from kedge.cli.config.server import server_config
from kedge.cli.config.settings import Settings
from kedge.cli.config.up import up_config
from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.settings.node_range import NodeRange

PATH = Path("/some/where/kedge.toml")


def flags(*words: str) -> Namespace:
    return parser().parse_args(words)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    return home | {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes = 3", {"nodes": NodeRange(3, 3)}),
        ("nodes = '1..5'", {"nodes": NodeRange(1, 5)}),
        ("upstream-only = true", {"upstream-only": True}),
        ('metrics-resolution = "1m"', {"metrics-resolution": 60}),
        ('controllers = ["*", "-job"]', {"controllers": ("*", "-job")}),
        ('controllers = "*,-job"', {"controllers": ("*", "-job")}),
        ('image-map = ["a=b", "c=d"]', {"image-map": ("a=b", "c=d")}),
        ('node-labels = {disk = "ssd", rack = "7"}', {"node-labels": {"disk": "ssd", "rack": "7"}}),
        ('[devices]\n"example.com/a" = 2', {"devices": {"example.com/a": 2}}),
        ('audit-log-path = "audit.log"', {"audit-log-path": Path("/some/where/audit.log")}),
        ('audit-log-path = ""', {"audit-log-path": ""}),
        ('hide = ["/a", "b"]', {"hide": (Path("/a"), Path("/some/where/b"))}),
    ],
)
def test_values_are_written_as_toml_has_them(text: str, expected: dict[str, object]) -> None:
    assert parse(PATH, text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1", 'unknown setting "prot" in /some/where/kedge.toml: did you mean "port"?'),
        ("max_pods = 1", 'unknown setting "max_pods" in .*: did you mean "max-pods"?'),
        ("[server]\nport = 1", 'unknown setting "server"|server in /some/where/kedge.toml: '),
        ("zzz = 1", 'unknown setting "zzz" in .*: a setting is named as its flag'),
        ("config = 1", 'unknown setting "config"'),
        ('port = "http"', 'port in /some/where/kedge.toml: "http" is not a port'),
        ("port = 2026-01-01", "port in /some/where/kedge.toml: is a date or a time: give text"),
        ("port = ", "/some/where/kedge.toml is not valid TOML: Invalid value"),
    ],
)
def test_errors_name_the_file_and_the_setting(text: str, complaint: str) -> None:
    with pytest.raises(Failure, match=complaint):
        parse(PATH, text)


def test_flags_beat_the_environment_which_beats_the_file_which_beats_the_default(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def port(*words: str) -> int:
        return server_config(Settings(flags("server", *words), environment)).port

    assert port() == 6443
    write(tmp_path / "config" / "kedge" / "kedge.toml", "port = 7000")
    assert port() == 7000
    environment["KEDGE_PORT"] = "8000"
    assert port() == 8000
    assert port("--port=9000") == 9000


def test_a_named_file_replaces_the_usual_one_and_an_empty_name_stands_for_none(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def port(*words: str) -> int:
        return server_config(Settings(flags("server", *words), environment)).port

    write(tmp_path / "config" / "kedge" / "kedge.toml", "port = 1")
    environment["KEDGE_CONFIG"] = str(write(tmp_path / "two.toml", "port = 2"))
    three = write(tmp_path / "three.toml", "port = 3")
    assert port() == 2
    assert port(f"--config={three}") == 3
    assert port("--config=") == 6443
    with pytest.raises(Failure, match=r"cannot read the settings in .*/four.toml: No such file"):
        port(f"--config={tmp_path}/four.toml")


def test_the_usual_file_is_that_of_the_user_or_of_the_machine_for_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Settings(flags("status"), {"HOME": str(tmp_path)}, {})
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert source.usual_file() == tmp_path / ".config" / "kedge" / "kedge.toml"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert source.usual_file() == Path("/etc/kedge/kedge.toml")


def test_commands_without_settings_read_no_file(environment: dict[str, str]) -> None:
    environment["KEDGE_CONFIG"] = "/nowhere"
    assert Settings(flags("get", "pods"), environment).path is None


def test_admission_plugins_of_the_environment_silence_those_of_the_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path / "config" / "kedge" / "kedge.toml", 'admission-control = "LimitRanger"')
    assert up_config(Settings(flags("up"), environment)).server.admission == ("LimitRanger",)
    environment["KEDGE_DISABLE_ADMISSION_PLUGINS"] = "LimitRanger"
    plugins = up_config(Settings(flags("up"), environment)).server.admission
    assert "LimitRanger" not in plugins
    assert "NamespaceLifecycle" in plugins


def test_containers_do_not_see_the_file(environment: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / "config" / "kedge" / "kedge.toml", 'token = "abcdef.0123456789abcdef"')
    (node,) = up_config(Settings(flags("up"), environment)).nodes
    assert path in node.hidden


def test_every_setting_of_every_process_can_be_in_the_file() -> None:
    expected = {"name", "state", "port", "nodes", "restart", "max-pods", "token", "tls-cert-file"}
    assert expected <= known_settings().keys()
    assert "config" not in known_settings()
