"""The configuration of a node agent."""

from argparse import Namespace
from pathlib import Path

import pytest

from kedge.cli.config import node as node_module
from kedge.cli.config.node import invitation, node_config, server_of_node
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.deviceplugin import DIRECTORY
from kedge.node.config import PLUGINS, Invitation
from kedge.node.host import node_record

TOKEN = "abcdef.0123456789abcdef"


def joined(root: Path, name: str, url: str) -> None:
    (root / "nodes" / name).mkdir(parents=True)
    node_record.write_server(root / "nodes" / name, url)


def flags(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


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


def test_device_plugins_register_where_they_look_for_kubelets() -> None:
    assert Path(DIRECTORY) == PLUGINS


def test_a_node_by_itself_has_the_directory_it_is_told(
    environment: dict[str, str], tmp_path: Path
) -> None:
    told = flags("node", "--node-name=node-2", f"--device-plugin-dir={tmp_path}/plugins")
    assert node_config(Settings(told, environment)).plugins == tmp_path / "plugins"
