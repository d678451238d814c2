"""Flags over environment over defaults."""

from argparse import Namespace
from pathlib import Path

import pytest

from kedge import config
from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.cli.registry import Where
from kedge.cli.state import prepare


def flags(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_flag_beats_the_environment_which_beats_the_default(environment: dict[str, str]) -> None:
    def port(*arguments: str) -> int:
        return config.server(config.Source(flags("server", *arguments), environment)).port

    assert port() == 6443
    environment["KEDGE_PORT"] = "7000"
    assert port() == 7000
    assert port("--port=0") == 0


def test_up_enforces_upstreams_plugins_and_a_bare_server_what_namespaces_need(
    environment: dict[str, str],
) -> None:
    up = config.up(config.Source(flags("up"), environment))
    server = config.server(config.Source(flags("server"), environment))
    assert "NamespaceLifecycle" in up.server.admission
    assert server.admission == ("NamespaceLifecycle",)


def test_up_can_be_told_to_enforce_nothing(environment: dict[str, str]) -> None:
    up = config.up(config.Source(flags("up", "--admission-control="), environment))
    assert up.server.admission == ()


@pytest.mark.parametrize(
    "spelling", ["--admission-control", "-admission_control", "--enable-admission-plugins"]
)
def test_every_spelling_of_admission_control_is_understood(
    environment: dict[str, str], spelling: str
) -> None:
    read = flags("server", f"{spelling}=NamespaceLifecycle")
    assert config.server(config.Source(read, environment)).admission == ("NamespaceLifecycle",)


def test_an_admission_plugin_that_does_not_exist_is_refused(environment: dict[str, str]) -> None:
    environment["KEDGE_ADMISSION_CONTROL"] = "NamespaceLifecycle,Wishful"
    with pytest.raises(Failure, match='no admission plugin "Wishful"'):
        config.server(config.Source(flags("server"), environment))


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("KEDGE_PORT", "http", '"http" is not a port'),
        ("KEDGE_PORT", "65536", '"65536" is not a port'),
        ("KEDGE_STORE", "floppy", "choose sqlite or memory"),
        ("KEDGE_NAME", "No Name", "is no name for a cluster"),
        ("KEDGE_UPSTREAM_ONLY", "maybe", "neither true nor false"),
    ],
)
def test_a_bad_value_in_the_environment_is_reported_with_the_variables_name(
    environment: dict[str, str], variable: str, value: str, complaint: str
) -> None:
    environment[variable] = value
    with pytest.raises(Failure, match=rf"\${variable}: .*{complaint}"):
        config.server(config.Source(flags("server"), environment))


def test_clusters_live_under_the_state_home(environment: dict[str, str], tmp_path: Path) -> None:
    source = config.Source(flags("server", "--name=blue"), environment)
    assert config.server(source).state == tmp_path / "state" / "kedge" / "blue"


def test_without_a_state_home_root_and_users_have_places_of_their_own(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del environment["XDG_STATE_HOME"]
    source = config.Source(flags("list"), environment)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert source.root() == tmp_path / ".local" / "state" / "kedge"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert source.root() == Path("/var/lib/kedge")


def test_a_directory_that_holds_a_cluster_knows_its_name(
    environment: dict[str, str], tmp_path: Path
) -> None:
    prepare(tmp_path / "there", "green")
    source = config.Source(flags("server", f"--state={tmp_path / 'there'}"), environment)
    assert config.server(source).name == "green"


def test_a_name_on_the_command_line_beats_a_directory_in_the_environment(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KEDGE_STATE"] = str(tmp_path / "there")
    root = tmp_path / "state" / "kedge"
    by_name = config.where(config.Source(flags("status", "--name=red"), environment))
    by_default = config.where(config.Source(flags("status"), environment))
    assert by_name == Where(root, "red", None)
    assert by_default == Where(root, "default", tmp_path / "there")


def test_the_kubeconfig_is_the_flags_else_the_one_kubectl_would_change(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def chosen(*arguments: str) -> Path:
        return config.up(config.Source(flags("up", *arguments), environment)).kubeconfig

    assert chosen() == tmp_path / ".kube" / "config"
    environment["KUBECONFIG"] = str(tmp_path / "a")
    assert chosen() == tmp_path / "a"
    assert chosen(f"--kubeconfig={tmp_path / 'b'}") == tmp_path / "b"
