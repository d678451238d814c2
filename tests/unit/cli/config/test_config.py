"""Flags over environment over defaults."""

from argparse import Namespace
from pathlib import Path

import pytest

from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.cluster.state import prepare
from kedge.cli.config import node as node_module
from kedge.cli.config.cluster import where
from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.node import invitation, node_config, server_of_node
from kedge.cli.config.server import server_config
from kedge.cli.config.settings import Settings
from kedge.cli.config.up import up_config
from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.cli.objects.client_flags import ClientConfig
from kedge.deviceplugin import DIRECTORY
from kedge.node import record
from kedge.node.config import PLUGINS, Invitation


def flags(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


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


def test_a_plugin_is_not_both_enabled_and_disabled(environment: dict[str, str]) -> None:
    environment["KEDGE_ENABLE_ADMISSION_PLUGINS"] = "NamespaceLifecycle"
    environment["KEDGE_DISABLE_ADMISSION_PLUGINS"] = "NamespaceLifecycle"
    with pytest.raises(Failure, match='"NamespaceLifecycle" is both enabled and disabled'):
        up_config(Settings(flags("up"), environment))


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
    ("variable", "value", "complaint"),
    [
        ("KEDGE_PORT", "http", '"http" is not a port'),
        ("KEDGE_PORT", "65536", '"65536" is not a port'),
        ("KEDGE_STORE", "floppy", "choose sqlite or memory"),
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


def test_containers_see_no_cluster_of_this_user_wherever_it_is_listed(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    node = node_config(Settings(flags("node", f"--state={tmp_path / 'there'}"), environment))
    lists = (tmp_path / "state" / "kedge", tmp_path / ".local" / "state" / "kedge")
    assert node.listed == lists
    assert {tmp_path / "there", *lists} <= {*node.hidden}
    assert node.hidden[0] == tmp_path / "there"


@pytest.mark.parametrize("way", ["--state", "XDG_STATE_HOME", "HOME"])
def test_a_cluster_is_the_same_one_whatever_link_leads_to_it(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("kedge.machinery.ownership.check_directory", lambda path: None)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    def cgroup(through: str) -> str:
        given = {**environment, way: str(tmp_path / through)}
        if way == "HOME":
            del given["XDG_STATE_HOME"]
        words = [f"--state={given[way]}"] if way == "--state" else []
        node = node_config(Settings(flags("node", *words), given))
        assert node.state.is_relative_to(tmp_path / "real")
        return node.cgroup

    assert cgroup("link") == cgroup("real")


def test_a_directory_that_holds_a_cluster_knows_its_name(
    environment: dict[str, str], tmp_path: Path
) -> None:
    prepare(tmp_path / "there", "green")
    source = Settings(flags("server", f"--state={tmp_path / 'there'}"), environment)
    assert server_config(source).name == "green"


def test_a_name_on_the_command_line_beats_a_directory_in_the_environment(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KEDGE_STATE"] = str(tmp_path / "there")
    root = tmp_path / "state" / "kedge"
    by_name = where(Settings(flags("status", "--name=red"), environment))
    by_default = where(Settings(flags("status"), environment))
    assert by_name == ClusterLocation(root, "red", None)
    assert by_default == ClusterLocation(root, "default", tmp_path / "there")


def test_the_kubeconfig_is_the_flags_else_the_one_kubectl_would_change(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def chosen(*arguments: str) -> Path:
        return up_config(Settings(flags("up", *arguments), environment)).kubeconfig

    assert chosen() == tmp_path / ".kube" / "config"
    environment["KUBECONFIG"] = str(tmp_path / "a")
    assert chosen() == tmp_path / "a"
    assert chosen(f"--kubeconfig={tmp_path / 'b'}") == tmp_path / "b"


def test_a_client_goes_where_kubectl_would(environment: dict[str, str], tmp_path: Path) -> None:
    def found(*arguments: str) -> ClientConfig:
        return client_config(Settings(flags("get", "pods", *arguments), environment))

    assert found() == ClientConfig([tmp_path / ".kube" / "config"])
    environment["KUBECONFIG"] = "a:b"
    assert found("-n=x", "--context=c") == ClientConfig([Path("a"), Path("b")], "c", "x")
    assert found("--kubeconfig=f").files == [Path("f")]


TOKEN = "abcdef.0123456789abcdef"


def joined(root: Path, name: str, url: str) -> None:
    (root / "nodes" / name).mkdir(parents=True)
    record.write_server(root / "nodes" / name, url)


def test_a_node_that_joins_is_called_as_its_machine(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Box-7.Example.com")
    asked = flags("node", "--server=https://127.0.0.1:6443", f"--token={TOKEN}")
    assert node_config(Settings(asked, environment)).name == "box-7.example.com"
    named = flags("node", "--server=https://127.0.0.1:6443", f"--token={TOKEN}", "--node-name=far")
    assert node_config(Settings(named, environment)).name == "far"


def test_a_node_that_joined_knows_who_and_where_it_is(
    environment: dict[str, str], tmp_path: Path
) -> None:
    joined(tmp_path / "state" / "kedge" / "default", "far", "https://127.0.0.1:7443")
    source = Settings(flags("node"), environment)
    found = node_config(source)
    assert (found.name, found.address) == ("far", "127.0.0.1")
    assert server_of_node(source, found) == "https://127.0.0.1:7443"
    moved = Settings(flags("node", "--server=https://127.0.0.1:8443/"), environment)
    assert server_of_node(moved, found) == "https://127.0.0.1:8443"


def test_among_several_nodes_the_first_is_meant(
    environment: dict[str, str], tmp_path: Path
) -> None:
    for name in ("node-1", "node-2"):
        (tmp_path / "state" / "kedge" / "default" / "nodes" / name).mkdir(parents=True)
    assert node_config(Settings(flags("node"), environment)).name == "node-1"


def test_a_server_that_nothing_leads_to_needs_an_address_for_the_node(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_way(host: str, port: int) -> str:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(node_module, "address_towards", no_way)
    words = ("node", "--server=https://192.0.2.1:6443", f"--token={TOKEN}", "--node-name=far")
    with pytest.raises(Failure, match=r"Network is unreachable.*say with --node-address"):
        node_config(Settings(flags(*words), environment))
    told = flags(*words, "--node-address=192.0.2.9")
    assert node_config(Settings(told, environment)).address == "192.0.2.9"


def test_an_invitation_is_a_token_a_server_and_a_reason_to_trust_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def invited(*arguments: str) -> Invitation | None:
        return invitation(Settings(flags("node", *arguments), environment))

    assert invited() is None
    with pytest.raises(Failure, match="say with --server where it is"):
        invited(f"--token={TOKEN}")
    server = "--server=https://192.0.2.1:6443"
    digest = f"sha256:{'AB' * 32}"
    assert invited(server, f"--token={TOKEN}", f"--ca-cert-hash={digest}") == Invitation(
        url="https://192.0.2.1:6443", token=TOKEN, ca_hash=digest.lower()
    )
    environment["KEDGE_TOKEN"] = TOKEN
    (tmp_path / "ca.crt").write_text("none")
    with pytest.raises(Failure, match=r"--ca-cert: .*there is no certificate in it"):
        invited(server, f"--ca-cert={tmp_path / 'ca.crt'}")
    with pytest.raises(Failure, match="No such file"):
        invited(server, f"--ca-cert={tmp_path / 'absent'}")


@pytest.mark.parametrize(
    "flag",
    [
        "--server=192.0.2.1:6443",
        "--server=http://192.0.2.1",
        "--server=https://",
        "--server=https://a:99999",
        "--token=abcdef",
        "--ca-cert-hash=sha256:12",
        f"--ca-cert-hash={'0' * 64}",
    ],
)
def test_what_cannot_be_joined_with_is_refused(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        flags("node", flag)
    assert "error: argument" in capsys.readouterr().err


def test_the_server_knows_the_nodes_that_start_with_it(environment: dict[str, str]) -> None:
    asked = flags("up", "--nodes=2", "--node-address=192.0.2.7")
    server = up_config(Settings(asked, environment)).server
    assert server.local_nodes == {"node-1": "192.0.2.7", "node-2": "192.0.2.7"}
    assert server.node_pki("node-2") == server.state / "nodes" / "node-2" / "pki"


def test_device_plugins_register_where_they_look_for_kubelets() -> None:
    assert Path(DIRECTORY) == PLUGINS


def test_labels_of_nodes_that_pods_may_know_are_listed(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = flags("up", "--expose-node-labels=example.com/rack, example.org/*")
    (node,) = up_config(Settings(asked, environment)).nodes
    assert node.exposed_labels == ("example.com/rack", "example.org/*")
    with pytest.raises(SystemExit):
        flags("up", "--expose-node-labels=a b")
    assert '"a b" is no label\'s key' in capsys.readouterr().err


def test_the_first_node_has_the_directory_for_plugins_and_others_their_own(
    environment: dict[str, str], tmp_path: Path
) -> None:
    told = flags("up", "--nodes=2", f"--device-plugin-dir={tmp_path}/plugins")
    one, two = up_config(Settings(told, environment)).nodes
    assert one.plugins == tmp_path / "plugins"
    assert two.plugins == two.own_plugins == two.state / "kubelet" / "device-plugins"


def test_a_node_by_itself_has_the_directory_it_is_told(
    environment: dict[str, str], tmp_path: Path
) -> None:
    told = flags("node", "--node-name=node-2", f"--device-plugin-dir={tmp_path}/plugins")
    assert node_config(Settings(told, environment)).plugins == tmp_path / "plugins"


def test_devices_to_simulate_are_counted(environment: dict[str, str]) -> None:
    told = flags("up", "--devices=example.com/a=1,example.com/b=2", "--devices=example.com/c=3")
    (node,) = up_config(Settings(told, environment)).nodes
    assert node.devices == {"example.com/a": 1, "example.com/b": 2, "example.com/c": 3}
    environment["KEDGE_DEVICES"] = "cpu=4"
    with pytest.raises(Failure, match='"cpu" is no name for devices'):
        up_config(Settings(flags("up"), environment))
