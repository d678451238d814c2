from ipaddress import IPv4Network
from pathlib import Path

import pytest

from kedge.node.network.addresses import (
    AddressPool,
    NoFreeAddress,
    free_network,
    internal_address,
    kept_network,
)

NETWORK = IPv4Network("10.244.7.0/29")


def test_node_gets_a_network_to_which_the_machine_has_no_route() -> None:
    taken = [
        IPv4Network("10.244.0.0/24"),
        IPv4Network("10.244.1.128/25"),
        IPv4Network("10.0.0.0/24"),
    ]
    assert str(free_network(taken)) == "10.244.2.0/24"


def test_machine_without_a_free_network_says_so() -> None:
    with pytest.raises(NoFreeAddress, match=r"10\.244\.0\.0/16"):
        free_network([IPv4Network("10.0.0.0/8")])


def test_address_is_used_again_only_when_the_others_were(tmp_path: Path) -> None:
    addresses = AddressPool(tmp_path, NETWORK)
    assert str(addresses.take("a")) == "10.244.7.2"
    addresses.give_back("a")
    assert [str(addresses.take(holder)) for holder in "bcdef"] == [
        "10.244.7.3",
        "10.244.7.4",
        "10.244.7.5",
        "10.244.7.6",
        "10.244.7.2",
    ]
    with pytest.raises(NoFreeAddress, match="in use"):
        addresses.take("g")


def test_restarted_agent_knows_who_has_which_address(tmp_path: Path) -> None:
    first = AddressPool(tmp_path, NETWORK).take("a")
    again = AddressPool(tmp_path, NETWORK)
    assert again.of("a") == first == again.take("a")
    assert again.take("b") != first
    assert again.holders() == ["a", "b"] or again.holders() == ["b", "a"]


@pytest.mark.parametrize(
    ("configured", "gateway", "expected"),
    [
        ("127.0.0.1", "10.244.3.1", "10.244.3.1"),
        ("::1", "10.244.3.1", "10.244.3.1"),
        ("localhost", "10.244.3.1", "10.244.3.1"),
        ("box.example.com", "10.244.3.1", "box.example.com"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("192.0.2.7", "10.244.3.1", "192.0.2.7"),
        ("0.0.0.0", "10.244.3.1", "0.0.0.0"),
    ],
)
def test_the_address_of_a_node(configured: str, gateway: str, expected: str) -> None:
    assert internal_address(configured, gateway) == expected


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"10.244.3.1/24", b"{}"])
def test_a_damaged_network_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "network"
    assert kept_network(file) is None
    file.write_bytes(content)
    assert kept_network(file) is None
    file.write_text("10.244.3.0/24")
    assert kept_network(file) == IPv4Network("10.244.3.0/24")
