"""Batches in the kernel, in a network namespace of the test's own."""

import os

import pytest

from kedge.node.network.nftables.batch import OWNER, PERSIST, Batch
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
