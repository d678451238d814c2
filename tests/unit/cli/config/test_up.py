"""The configuration of a cluster on this machine."""

from argparse import Namespace
from pathlib import Path

import pytest

from kedge.apiserver.config import ServerConfig
from kedge.cli.config.settings import Settings
from kedge.cli.config.up import up_config
from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.machinery.quantity import Quantity


def flags(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


def test_a_plugin_is_not_both_enabled_and_disabled(environment: dict[str, str]) -> None:
    environment["KEDGE_ENABLE_ADMISSION_PLUGINS"] = "NamespaceLifecycle"
    environment["KEDGE_DISABLE_ADMISSION_PLUGINS"] = "NamespaceLifecycle"
    with pytest.raises(Failure, match='"NamespaceLifecycle" is both enabled and disabled'):
        up_config(Settings(flags("up"), environment))


def test_the_server_knows_the_nodes_that_start_with_it(environment: dict[str, str]) -> None:
    asked = flags("up", "--nodes=2", "--node-address=192.0.2.7")
    server = up_config(Settings(asked, environment)).server
    assert server.local_nodes == {"node-1": "192.0.2.7", "node-2": "192.0.2.7"}
    assert server.node_pki("node-2") == server.state / "nodes" / "node-2" / "pki"


def test_a_range_starts_the_least_and_keeps_the_others_for_the_autoscaler(
    environment: dict[str, str],
) -> None:
    asked = flags("up", "--nodes=1..3", "--scale-down-delay=5m")
    config = up_config(Settings(asked, environment))
    assert [each.name for each in config.nodes] == ["node-1"]
    assert [each.name for each in config.spare] == ["node-2", "node-3"]
    assert list(config.server.local_nodes) == ["node-1", "node-2", "node-3"]
    assert config.scale_down_delay == 300


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


def test_devices_to_simulate_are_counted(environment: dict[str, str]) -> None:
    told = flags("up", "--devices=example.com/a=1,example.com/b=2", "--devices=example.com/c=3")
    (node,) = up_config(Settings(told, environment)).nodes
    assert node.devices == {"example.com/a": 1, "example.com/b": 2, "example.com/c": 3}
    environment["KEDGE_DEVICES"] = "cpu=4"
    with pytest.raises(Failure, match='"cpu" is no name for devices'):
        up_config(Settings(flags("up"), environment))


def test_simulated_nodes_have_a_taint_beside_other_nodes(environment: dict[str, str]) -> None:
    def server(*arguments: str) -> ServerConfig:
        return up_config(Settings(flags("up", *arguments), environment)).server

    mixed = server("--simulated-nodes=50", "--simulated-node-resources=cpu=8,example.com/gpu=4")
    assert mixed.simulation.nodes == 50
    assert mixed.simulation.resources["example.com/gpu"] == Quantity.parse("4")
    assert mixed.simulated_nodes_have_taint
    assert not server("--simulated-nodes=50", "--nodes=0").simulated_nodes_have_taint
    forced = server("--nodes=0", "--simulated-node-taint=on")
    assert forced.simulated_nodes_have_taint
    assert not server("--simulated-node-taint=off").simulated_nodes_have_taint


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("--simulated-nodes=10001", "a cluster has at most 10000 of them"),
        ("--simulated-nodes=-1", '"-1" is not a number from 0 on'),
        ("--simulated-node-taint=maybe", "invalid choice"),
    ],
)
def test_a_bad_number_of_simulated_nodes_is_refused(
    flag: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        flags("up", flag)
    assert complaint in capsys.readouterr().err


def test_resources_that_no_node_can_have_are_refused(environment: dict[str, str]) -> None:
    asked = flags("up", "--simulated-node-resources=gpu=-1")
    with pytest.raises(Failure, match="--simulated-node-resources gpu=-1: Invalid value"):
        up_config(Settings(asked, environment))


def test_other_machines_reach_nodes_where_they_reach_the_server(
    environment: dict[str, str],
) -> None:
    def machine_address(*arguments: str) -> str:
        (node,) = up_config(Settings(flags("up", *arguments), environment)).nodes
        return node.underlay_address

    assert machine_address() == "127.0.0.1"
    assert machine_address("--host=192.0.2.7") == "192.0.2.7"
    assert machine_address("--host=192.0.2.7", "--node-address=192.0.2.8") == "192.0.2.8"
    assert machine_address("--host=192.0.2.7", "--machine-address=192.0.2.9") == "192.0.2.9"
