"""The table of policies in the kernel: written, taken over, removed."""

import asyncio
import contextlib
import os

import pytest

from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.policy_table import PolicyTable
from kedge.node.policies.policy_chains import base_chains, base_sets
from kedge.node.policies.table_content import TableContent
from kedge.testing.network import run_elsewhere

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")


def tables() -> list[str]:
    with contextlib.closing(NftablesSocket()) as channel:
        return channel.tables()


def test_a_table_outlives_its_socket_and_the_next_one_replaces_it() -> None:
    async def work() -> None:
        content = TableContent(base_sets(), base_chains())
        for _ in range(2):
            table = PolicyTable("kbr1")
            await table.rewrite(content.everything)
            content.confirm()
            await table.apply(content.change)
            table.close()
            assert await asyncio.to_thread(tables) == ["kbr1_policies"]
        table = PolicyTable("kbr1")
        await table.clear()
        await table.clear()
        assert tables() == []
        await table.rewrite(content.everything)
        table.remove()
        table.remove()
        assert tables() == []

    run_elsewhere(work)
