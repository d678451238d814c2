"""The numbers of tunnels; tests/e2e/pods/test_machines.py sends packets through them."""

from ipaddress import IPv4Network

from kedge.node.network import tunnel

NETWORK = IPv4Network("10.244.3.0/24")


def test_every_node_of_a_cluster_has_a_number_of_its_own() -> None:
    networks = list(IPv4Network("10.244.0.0/16").subnets(new_prefix=24))
    numbers = {tunnel.number(each) for each in networks}
    assert len(numbers) == 256
    assert max(numbers) < 1 << 24
    assert tunnel.number(NETWORK) == 0x6BF403


def test_hardware_addresses_are_of_local_administration() -> None:
    assert tunnel.hardware_address(NETWORK).hex(":") == "02:6b:0a:f4:03:00"
