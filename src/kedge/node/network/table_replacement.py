"""Replace a whole nf_tables table without a moment in which a packet meets no rules.

The kernel switches between the rules of two tables at once, but a packet passes their base chains
one after the other. New base chains come before old ones of the same priority. So a packet that
has passed the new chain before the switch and reaches the old one after it meets neither: a
connection to a Service is refused, and a packet that a policy denies gets through. Therefore a
second table with the same rules, the cover, is there while the first one is replaced.
"""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from kedge.node.network.nftables.batch import Batch
from kedge.node.network.nftables.channel import NftablesSocket


class TableBuilder(Protocol):
    """Returns the batch that writes the content of a table under a name."""

    def __call__(self, name: str, /, *, replaces: bool) -> Batch: ...


def cover_name(table: str) -> str:
    return f"{table}_cover"


def replace_table(channel: NftablesSocket, name: str, build: TableBuilder) -> None:
    """Write a table in place of the one with its name, if there is one. Raises OSError; the table
    is unchanged then."""
    present = channel.tables()
    if name not in present:
        channel.apply(build(name, replaces=False))
        # A cover without its table: the agent was killed after it had removed the table.
        delete_tables(channel, cover_name(name))
        return
    with _cover(channel, cover_name(name), build):
        channel.apply(build(name, replaces=True))


@contextlib.contextmanager
def _cover(channel: NftablesSocket, name: str, build: TableBuilder) -> Iterator[None]:
    # A cover may be left of an agent that was killed while it replaced its table.
    channel.apply(build(name, replaces=name in channel.tables()))
    try:
        yield
    finally:
        delete_tables(channel, name)


def delete_tables(channel: NftablesSocket, *names: str) -> None:
    """Delete the tables that are there, in this order."""
    present = channel.tables()
    for name in names:
        if name in present:
            change = Batch(name)
            change.delete_table()
            channel.apply(change)
