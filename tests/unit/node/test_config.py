from __future__ import annotations

from pathlib import Path

from kedge.node.config import NodeConfig


def config(state: str) -> NodeConfig:
    return NodeConfig(name="node-1", cluster="default", state=Path(state), images=Path("/images"))


def test_nodes_of_one_name_have_control_groups_of_their_own() -> None:
    mine, yours = config("/home/me/node-1").cgroup, config("/home/you/node-1").cgroup
    assert mine != yours
    assert mine.startswith("/kedge/default-node-1-")


def test_a_node_finds_its_control_groups_again() -> None:
    assert config("/home/me/node-1").cgroup == config("/home/me/node-1").cgroup
