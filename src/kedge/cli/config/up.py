"""Make the configuration of `kedge up`."""

import msgspec

from kedge.apiserver import server_addresses
from kedge.apiserver.config import UPSTREAM_ADMISSION, ServerConfig
from kedge.cli.cluster.up.command import (
    NODES,
    RESOLUTION_SECONDS,
    RESTART,
    SCALE_DOWN_DELAY,
    UpConfig,
)
from kedge.cli.config.kubeconfig import kubeconfig
from kedge.cli.config.node import configured_node, node_name
from kedge.cli.config.server import server_config
from kedge.cli.config.settings import Settings
from kedge.machinery.interfaces import is_reachable
from kedge.node.config import NodeConfig


def up_config(source: Settings) -> UpConfig:
    """Return the configuration of a cluster on this machine."""
    server = server_config(
        source, admission=UPSTREAM_ADMISSION, defaults={"port": 0, "gateway": True}
    )
    wanted = source.value(NODES)
    nodes = tuple(_placed(each, server) for each in _nodes(source, wanted.most))
    return UpConfig(
        server=msgspec.structs.replace(
            server, local_nodes={each.name: each.address for each in nodes}
        ),
        nodes=nodes[: wanted.least],
        port_given=source.field(ServerConfig, "port") is not None,
        root=source.root(),
        kubeconfig=kubeconfig(source),
        wait=source.flags.wait,
        restart=source.value(RESTART),
        spare=nodes[wanted.least :],
        scale_down_delay=source.value(SCALE_DOWN_DELAY),
    )


def _nodes(source: Settings, number: int) -> tuple[NodeConfig, ...]:
    return tuple(
        configured_node(source, node_name(i + 1), is_first=not i, resolution=RESOLUTION_SECONDS)
        for i in range(number)
    )


def _placed(node: NodeConfig, server: ServerConfig) -> NodeConfig:
    """Return a node that other machines reach where they reach the server, unless it says where."""
    if node.machine_address or is_reachable(node.address):
        return node
    return msgspec.structs.replace(node, machine_address=server_addresses.machine_address(server))
