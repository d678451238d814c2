"""A table is replaced under a cover; tests/contract/test_service_datapath.py connects meanwhile."""

import contextlib
import os
from collections.abc import Callable

import pytest

from kedge.node.network import ruleset
from kedge.node.network.nftables.batch import Batch
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.ruleset import EMPTY
from kedge.node.network.table_replacement import cover_name, delete_tables, replace_table
from kedge.testing.network import run_elsewhere

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="this user may not make namespaces")


class Builder:
    """Writes empty tables, and notes which tables are there when it is asked for the next."""

    def __init__(self, channel: NftablesSocket) -> None:
        self.channel = channel
        self.present: list[list[str]] = []
        self.broken = ""

    def __call__(self, name: str, /, *, replaces: bool) -> Batch:
        self.present.append(self.channel.tables())
        made = ruleset.replacement(name, 0, [EMPTY], replaces=replaces)
        if name == self.broken:
            made.delete_chain("missing")
        return made


def with_channel(work: Callable[[NftablesSocket, Builder], None]) -> None:
    async def inside() -> None:
        with contextlib.closing(NftablesSocket()) as channel:
            work(channel, Builder(channel))

    run_elsewhere(inside)


def test_a_cover_is_there_while_a_table_is_replaced() -> None:
    def work(channel: NftablesSocket, build: Builder) -> None:
        replace_table(channel, "ours", build)
        replace_table(channel, "ours", build)
        assert build.present == [[], ["ours"], ["ours", "ours_cover"]]
        assert channel.tables() == ["ours"]

    with_channel(work)


def test_the_cover_of_a_killed_agent_is_replaced_and_deleted() -> None:
    def work(channel: NftablesSocket, build: Builder) -> None:
        for left in (("ours", "ours_cover"), ("ours_cover",)):
            for name in left:
                channel.apply(build(name, replaces=False))
            replace_table(channel, "ours", build)
            assert channel.tables() == ["ours"]
            delete_tables(channel, "ours")

    with_channel(work)


@pytest.mark.parametrize("broken", ["ours", cover_name("ours")])
def test_a_refused_table_leaves_the_previous_one_without_a_cover(broken: str) -> None:
    def work(channel: NftablesSocket, build: Builder) -> None:
        replace_table(channel, "ours", build)
        build.broken = broken
        with pytest.raises(OSError, match="No such file"):
            replace_table(channel, "ours", build)
        assert channel.tables() == ["ours"]

    with_channel(work)


def test_tables_that_are_missing_are_not_deleted() -> None:
    def work(channel: NftablesSocket, build: Builder) -> None:
        replace_table(channel, "ours", build)
        delete_tables(channel, "other", "ours")
        delete_tables(channel, "other", "ours")
        assert channel.tables() == []

    with_channel(work)
