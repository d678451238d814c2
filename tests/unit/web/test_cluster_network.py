"""Which connections of a server begin in the network namespace of its nodes."""

import os
import socket
from pathlib import Path

import pytest

from kedge.web import cluster_network
from kedge.web.cluster_network import MACHINE, ClusterNetwork


def test_addresses_of_pods_and_nodes_are_inside() -> None:
    network = ClusterNetwork(socket.socket)
    assert network.maker("10.244.3.7") is socket.socket
    for host in ("192.0.2.1", "127.0.0.1", "example.com", "::1", ""):
        assert network.maker(host) is None


def test_without_a_namespace_everything_is_outside() -> None:
    assert MACHINE.maker("10.244.3.7") is None
    assert MACHINE.listening_maker("10.244.3.7") is socket.socket


def test_root_shares_the_machines_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cluster_network.network_of(tmp_path) is MACHINE
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = cluster_network.network_of(tmp_path).maker("10.244.0.1")
    assert found is not None
    with pytest.raises(ConnectionRefusedError, match="no supervisor"):
        found(socket.AF_INET, socket.SOCK_STREAM, 0)
