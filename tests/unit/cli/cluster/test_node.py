"""What `kedge node` refuses before it does anything."""

import os
from pathlib import Path

import pytest
import yaml

from kedge.cli.cluster import node, state
from kedge.cli.failure import Failure
from kedge.node.config import Invitation, NodeConfig

INVITATION = Invitation(url="https://127.0.0.1:1", token="abcdef.0123456789abcdef", ca_pem=b"PEM")


def config(directory: Path) -> NodeConfig:
    home = directory / "nodes" / "far"
    return NodeConfig(
        name="far", cluster="c", state=home, images=directory / "images", hidden=(directory,)
    )


def nothing() -> None:
    raise AssertionError("the agent must not run")


def test_a_directory_that_holds_a_cluster_is_not_made_a_node_of_another(tmp_path: Path) -> None:
    state.prepare(tmp_path, "mine")
    with pytest.raises(Failure, match='holds the cluster "mine": choose another directory'):
        node.run_agent(config(tmp_path), INVITATION, lambda: "", nothing)
    assert not (tmp_path / "nodes").exists()


def test_a_node_that_nobody_made_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r'there is no node "far" in .* --server and --token'):
        node.check_made(config(tmp_path))


def test_a_starter_that_dies_before_it_says_where_the_server_is_is_not_waited_for() -> None:
    hear, say = os.pipe()
    os.close(say)
    with pytest.raises(Failure, match="without sending the address of the server"):
        node.url_from_pipe(hear)()


def test_a_directory_of_a_node_is_for_its_owner_only(tmp_path: Path) -> None:
    wanted = config(tmp_path / "new")
    node.prepare(wanted)
    places = (wanted.hidden[0], wanted.state.parent, wanted.state)
    assert {each.stat().st_mode & 0o777 for each in places} == {0o700}


def test_the_printed_role_has_what_nodes_may_do_on_kedge_beyond_upstream() -> None:
    role, binding = yaml.safe_load_all(node.role_text())
    assert role["metadata"] == binding["metadata"] == {"name": "kedge:node"}
    assert binding["roleRef"]["name"] == "kedge:node"
    assert [each["name"] for each in binding["subjects"]] == ["system:nodes"]
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted >= {
        ("", "nodes", "watch"),
        ("", "persistentvolumes", "patch"),
        ("discovery.k8s.io", "endpointslices", "watch"),
        ("networking.k8s.io", "networkpolicies", "watch"),
        ("storage.k8s.io", "csistoragecapacities", "create"),
        ("storage.k8s.io", "storageclasses", "list"),
    }
    assert not {verb for _, resource, verb in granted if resource == "secrets"}
