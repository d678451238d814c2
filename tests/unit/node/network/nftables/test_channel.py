"""Batches in the kernel, in a network namespace of the test's own."""

import os

import pytest

from kedge.node.network.nftables.attributes import number, text
from kedge.node.network.nftables.batch import (
    FORWARD,
    INPUT,
    IPV4,
    OWNER,
    PERSIST,
    Batch,
    ChainHook,
    SetSpec,
)
from kedge.node.network.nftables.channel import ChainName, NftablesSocket
from kedge.testing.network import run_elsewhere

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")


def table(name: str) -> Batch:
    made = Batch(name)
    made.add_table(OWNER | PERSIST)
    made.add_chain("one")
    return made


def test_a_batch_is_applied_as_a_whole_or_not_at_all() -> None:
    async def work() -> None:
        channel = NftablesSocket()
        channel.apply(table("ours"))
        assert channel.chains() == [ChainName("ours", "one")]
        broken = Batch("ours")
        broken.add_chain("two")
        broken.delete_chain("missing")
        broken.delete_chain("missing as well")
        with pytest.raises(FileNotFoundError):
            channel.apply(broken)
        assert channel.chains() == [ChainName("ours", "one")]
        channel.apply(Batch("ours"))
        channel.close()

    run_elsewhere(work)


def test_a_table_belongs_to_its_socket_and_outlives_it() -> None:
    async def work() -> None:
        ours, stranger = NftablesSocket(), NftablesSocket()
        ours.apply(table("ours"))
        removal = Batch("ours")
        removal.delete_table()
        with pytest.raises(PermissionError):
            stranger.apply(removal)
        ours.close()
        assert stranger.tables() == ["ours"]
        stranger.apply(removal)
        assert stranger.tables() == []
        stranger.close()

    run_elsewhere(work)


def test_elements_are_read_with_the_time_they_have_left() -> None:
    async def work() -> None:
        channel = NftablesSocket()
        made = table("ours")
        made.add_set("clients", SetSpec((IPV4,), timeout_seconds=60))
        many = {number.to_bytes(4, "big"): 50_000 for number in range(1, 2000)}
        made.add_expiring_elements("clients", many)
        channel.apply(made)
        # The kernel grows the set's table after the batch. A read meanwhile may miss elements.
        reads = (channel.expirations("ours", "clients") for _ in range(1000))
        found = next((read for read in reads if read.keys() == many.keys()), {})
        assert found, "no read had all elements"
        assert all(40_000 < left <= 50_000 for left in found.values())
        with pytest.raises(FileNotFoundError):
            channel.expirations("ours", "missing")
        assert channel.tables() == ["ours"], "the socket is still in step"
        channel.close()

    run_elsewhere(work)


def test_tables_that_drop_forwarded_packets_are_found() -> None:
    async def work() -> None:
        channel = NftablesSocket()
        made = Batch("firewall")
        made.add_table(0)
        made.add_chain("forward", ChainHook("filter", FORWARD, 0))
        made.add_chain("input", ChainHook("filter", INPUT, 0))
        channel.apply(made)
        assert channel.dropping_tables() == []
        made = Batch("firewall")
        made._add(3, 0, text(3, "input") + number(5, 0))
        channel.apply(made)
        assert channel.dropping_tables() == []
        made = Batch("firewall")
        made._add(3, 0, text(3, "forward") + number(5, 0))
        channel.apply(made)
        assert channel.dropping_tables() == ["firewall"]
        channel.close()

    run_elsewhere(work)
