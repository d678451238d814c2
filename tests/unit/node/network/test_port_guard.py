"""The table of a bridge: written once, and changed with its ports.

tests/contract/test_pod_frames.py sends forged frames through it.
"""

import errno
import os
from ipaddress import IPv4Address

import pytest

from kedge.node.network.nftables.attributes import BRIDGE
from kedge.node.network.nftables.batch import Batch
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.port_guard import PortGuard
from kedge.testing.network import run_elsewhere

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")

HARDWARE, ADDRESS = bytes([2, 0, 0, 0, 0, 1]), IPv4Address("10.244.0.2")
GATEWAY = bytes([2, 0, 0, 0, 0, 9])


def tables() -> list[str]:
    channel = NftablesSocket()
    try:
        return channel.tables(BRIDGE)
    finally:
        channel.close()


def test_the_next_agent_takes_the_table_over() -> None:
    async def inside() -> None:
        first, second = PortGuard("kbr1", GATEWAY), PortGuard("kbr1", GATEWAY)
        first.open()
        first.protect(7, HARDWARE, ADDRESS)
        first.close()
        second.open()
        assert tables() == ["kbr1"]
        second.forget(7, HARDWARE, ADDRESS)
        second.forget(7, HARDWARE, ADDRESS)
        second.forget(0, HARDWARE, ADDRESS)
        second.remove()
        second.remove()
        assert tables() == []

    run_elsewhere(inside)


def test_a_kernel_without_rules_for_bridges_guards_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(channel: NftablesSocket, batch: Batch) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    async def inside() -> None:
        monkeypatch.setattr(NftablesSocket, "apply", refuse)
        guard = PortGuard("kbr1", GATEWAY)
        guard.open()
        guard.protect(7, HARDWARE, ADDRESS)
        guard.forget(7, HARDWARE, ADDRESS)
        guard.remove()

    run_elsewhere(inside)
    assert "pods can forge addresses" in caplog.text
