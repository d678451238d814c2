from pathlib import Path

from msgspec.structs import replace

from kedge.api.core_v1.node_types import NodeAddress, NodeStatus
from kedge.testing.local_server import LocalServer
from kedge.testing.node import LocalNode


async def test_the_node_has_at_most_one_address_of_each_family(tmp_path: Path) -> None:
    async with LocalServer.running() as server:
        made = LocalNode(server, tmp_path)
        addresses = [
            NodeAddress(type="Hostname", address="here"),
            NodeAddress(type="InternalIP", address="192.0.2.1"),
            NodeAddress(type="InternalIP", address="2001:db8::1"),
            NodeAddress(type="InternalIP", address="192.0.2.2"),
        ]
        made.here.node = replace(made.here.node, status=NodeStatus(addresses=addresses))
        assert made.dependencies().host_ips() == ["192.0.2.1", "2001:db8::1"]
