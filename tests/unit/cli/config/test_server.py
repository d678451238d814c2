"""The configuration of a server: flags, then environment variables, then defaults."""

from argparse import Namespace
from pathlib import Path

import pytest

from kedge.cli.cluster.state import prepare
from kedge.cli.config.server import server_config
from kedge.cli.config.settings import Settings
from kedge.cli.config.up import up_config
from kedge.cli.failure import Failure
from kedge.cli.main import parser


def flags(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


def test_a_flag_beats_the_environment_which_beats_the_default(environment: dict[str, str]) -> None:
    def port(*arguments: str) -> int:
        return server_config(Settings(flags("server", *arguments), environment)).port

    assert port() == 6443
    environment["KEDGE_PORT"] = "7000"
    assert port() == 7000
    assert port("--port=0") == 0


def test_up_enforces_upstreams_plugins_and_a_bare_server_what_namespaces_need(
    environment: dict[str, str],
) -> None:
    up = up_config(Settings(flags("up"), environment))
    server = server_config(Settings(flags("server"), environment))
    assert "NamespaceLifecycle" in up.server.admission
    assert server.admission == ("NamespaceLifecycle",)


def test_up_can_be_told_to_enforce_nothing(environment: dict[str, str]) -> None:
    up = up_config(Settings(flags("up", "--admission-control="), environment))
    assert up.server.admission == ()


@pytest.mark.parametrize(
    "spelling", ["--admission-control", "-admission_control", "--admission_control"]
)
def test_every_spelling_of_admission_control_is_understood(
    environment: dict[str, str], spelling: str
) -> None:
    read = flags("up", f"{spelling}=NamespaceLifecycle")
    assert up_config(Settings(read, environment)).server.admission == ("NamespaceLifecycle",)


def test_enabling_and_disabling_plugins_changes_the_default(environment: dict[str, str]) -> None:
    def plugins(*arguments: str) -> list[str]:
        up = up_config(Settings(flags("up", *arguments), environment))
        return list(up.server.admission)

    off = "--disable-admission-plugins=MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
    assert "MutatingAdmissionWebhook" in plugins()
    assert "MutatingAdmissionWebhook" not in plugins(off)
    assert "NamespaceLifecycle" in plugins(off)
    assert plugins("--enable-admission-plugins=NamespaceLifecycle") == plugins()


def test_a_bare_server_enforces_the_enabled_plugins_beside_its_own_in_their_order(
    environment: dict[str, str],
) -> None:
    on = "--enable-admission-plugins=ValidatingAdmissionWebhook,MutatingAdmissionWebhook"
    assert server_config(Settings(flags("server", on), environment)).admission == (
        "NamespaceLifecycle",
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionWebhook",
    )


@pytest.mark.parametrize("relative", ["enable", "disable"])
def test_an_exact_list_of_plugins_and_a_change_to_the_default_exclude_each_other(
    environment: dict[str, str], relative: str
) -> None:
    change = f"--{relative}-admission-plugins=NamespaceLifecycle"
    both = flags("up", "--admission-control=NamespaceLifecycle", change)
    with pytest.raises(Failure, match=f"--admission-control .*--{relative}-admission-plugins"):
        up_config(Settings(both, environment))


def test_a_flag_about_plugins_silences_what_the_environment_says_of_them(
    environment: dict[str, str],
) -> None:
    environment["KEDGE_ADMISSION_CONTROL"] = "NamespaceLifecycle"
    off = flags("up", "--disable-admission-plugins=NamespaceLifecycle")
    plugins = up_config(Settings(off, environment)).server.admission
    assert "NamespaceLifecycle" not in plugins
    assert "MutatingAdmissionWebhook" in plugins


@pytest.mark.parametrize("flag", ["--token-auth-file", "--audit-log-path"])
def test_a_file_is_found_from_where_the_command_was_given(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    # The server itself moves to its own directory.
    monkeypatch.chdir(tmp_path)
    made = server_config(Settings(flags("server", f"{flag}=some.file"), environment))
    assert tmp_path / "some.file" in (made.token_auth_file, made.audit_log)


def test_limits_on_requests_in_flight_can_be_set_and_lifted(environment: dict[str, str]) -> None:
    asked = ("--max-requests-inflight=0", "--max-mutating-requests-inflight=7")
    usual = server_config(Settings(flags("server"), environment))
    made = server_config(Settings(flags("server", *asked), environment))
    assert (usual.max_requests_inflight, usual.max_mutating_requests_inflight) == (400, 200)
    assert (made.max_requests_inflight, made.max_mutating_requests_inflight) == (0, 7)


def test_an_admission_plugin_that_does_not_exist_is_refused(environment: dict[str, str]) -> None:
    environment["KEDGE_ADMISSION_CONTROL"] = "NamespaceLifecycle,Wishful"
    with pytest.raises(Failure, match=r'no admission plugin "Wishful".*ValidatingAdmissionWebhook'):
        server_config(Settings(flags("server"), environment))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--store=sqlite",), "--servers 2 needs a store that servers can share"),
        (("--store=etcd://127.0.0.1:1", "--testing"), "--testing is for clusters of one server"),
    ],
)
def test_several_servers_are_refused_what_each_would_have_alone(
    environment: dict[str, str], arguments: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(Failure, match=complaint):
        up_config(Settings(flags("up", "--servers=2", *arguments), environment))
    shared = ("--store=etcd://127.0.0.1:1", "--servers=2")
    assert up_config(Settings(flags("up", *shared), environment)).server.servers == 2


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("KEDGE_PORT", "http", '"http" is not a port'),
        ("KEDGE_PORT", "65536", '"65536" is not a port'),
        ("KEDGE_SERVERS", "10", "is not a number from 1 to 9"),
        ("KEDGE_STORE", "floppy", "choose sqlite, memory, etcd://HOST:PORT,... or postgresql:"),
        ("KEDGE_NAME", "No Name", "is no name for a cluster"),
        ("KEDGE_UPSTREAM_ONLY", "maybe", "neither true nor false"),
        ("KEDGE_MAX_REQUESTS_INFLIGHT", "-1", '"-1" is not a number from 0 on'),
        ("KEDGE_AUDIT_LOG_PATH", "-", "give the name of one"),
    ],
)
def test_a_bad_value_in_the_environment_is_reported_with_the_variables_name(
    environment: dict[str, str], variable: str, value: str, complaint: str
) -> None:
    environment[variable] = value
    with pytest.raises(Failure, match=rf"\${variable}: .*{complaint}"):
        server_config(Settings(flags("server"), environment))


def test_clusters_live_under_the_state_home(environment: dict[str, str], tmp_path: Path) -> None:
    source = Settings(flags("server", "--name=blue"), environment)
    assert server_config(source).state == tmp_path / "state" / "kedge" / "blue"


def test_a_directory_that_holds_a_cluster_knows_its_name(
    environment: dict[str, str], tmp_path: Path
) -> None:
    prepare(tmp_path / "there", "green")
    source = Settings(flags("server", f"--state={tmp_path / 'there'}"), environment)
    assert server_config(source).name == "green"


def test_load_balancers_have_other_addresses_than_cluster_ips(environment: dict[str, str]) -> None:
    def network(*arguments: str) -> str:
        read = Settings(flags("server", *arguments), environment)
        return server_config(read).load_balancer_network

    assert network("--load-balancer-cidr=192.0.2.64/28") == "192.0.2.64/28"
    with pytest.raises(Failure, match=r"--load-balancer-cidr 10.0.0.0/8 overlaps 10.96.0.0/16"):
        network("--load-balancer-cidr=10.0.0.0/8")


@pytest.mark.parametrize("wrong", ["10.97.0.1/24", "10.97.0.0/33", "fd00::/64", "nonsense"])
def test_load_balancers_need_a_network(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags("server", f"--load-balancer-cidr={wrong}")
    assert f'"{wrong}" is not an IPv4 network' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [("30000-32767", 30000, 32767), ("20000+100", 20000, 20100), ("1-1", 1, 1)],
)
def test_ranges_of_node_ports(
    environment: dict[str, str], given: str, first: int, last: int
) -> None:
    read = Settings(flags("server", f"--service-node-port-range={given}"), environment)
    assert server_config(read).node_ports == range(first, last + 1)


@pytest.mark.parametrize("wrong", ["", "30000", "2-1", "0-5", "1-65536", "a-b", "1-2-3", "65535+1"])
def test_what_is_not_a_range_of_node_ports(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags("server", f"--service-node-port-range={wrong}")
    assert "is not a range of ports" in capsys.readouterr().err
