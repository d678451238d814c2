"""The namespace of a program that carries packets."""

import os
import socket

import pytest

from kedge.node.network.netlink import Netlink
from kedge.supervisor import uplink_namespace


@pytest.mark.skipif(os.geteuid() != 0, reason="making a network namespace takes root")
def test_the_namespace_is_another_one_and_the_process_comes_back() -> None:
    home = os.readlink("/proc/self/ns/net")
    itself, channel = uplink_namespace.make()
    try:
        assert os.readlink("/proc/self/ns/net") == home
        assert os.readlink(f"/proc/self/fd/{itself}") != home
        with Netlink(socket.socket(fileno=channel)) as netlink:
            assert set(netlink.links()) == {"lo"}
    finally:
        os.close(itself)
