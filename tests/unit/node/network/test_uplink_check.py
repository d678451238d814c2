"""The check of a program where no node runs."""

import os
import socket

import pytest

from kedge.node.network import uplink_check
from kedge.node.network.uplink_check import EmptyNamespace
from kedge.testing.clock import FakeClock


async def test_a_program_that_is_not_installed_is_named_and_nothing_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    itself = os.open("/proc/self/ns/net", os.O_RDONLY)
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).detach()
    one = socket.socket().detach()
    inside = EmptyNamespace(itself, channel, [one])
    assert await uplink_check.problem("pasta", inside, FakeClock()) == "not installed"
    for descriptor in (itself, channel, one):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
