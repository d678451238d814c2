"""Addresses of simulated nodes and pods."""

from ipaddress import IPv4Network

import pytest

from kedge.simulated_nodes.addresses import NoAddressLeft, SimulatedAddresses


def test_addresses_are_unique_and_come_back_last() -> None:
    pool = SimulatedAddresses(IPv4Network("198.18.0.0/29"))
    pool.reserve("198.18.0.2")
    pool.reserve("10.0.0.1")
    taken = [pool.take() for _ in range(4)]
    assert taken == ["198.18.0.1", "198.18.0.3", "198.18.0.4", "198.18.0.5"]
    pool.release("198.18.0.3")
    assert [pool.take(), pool.take()] == ["198.18.0.6", "198.18.0.3"]
    with pytest.raises(NoAddressLeft, match="are taken"):
        pool.take()


@pytest.mark.parametrize("address", ["node.example.com", "fd00::1", "300.1.1.1", ""])
def test_names_and_addresses_of_others_do_not_matter(address: str) -> None:
    pool = SimulatedAddresses(IPv4Network("198.18.0.0/29"))
    pool.reserve(address)
    pool.release(address)
    assert pool.take() == SimulatedAddresses(IPv4Network("198.18.0.0/29")).take()
