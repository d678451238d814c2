"""The nf_tables table of a node's network policies, in the kernel.

It is a table of its own, so that Services and policies change independently. It outlives the
agent: policies hold while there is none. It exists only while there are policies, so that a
cluster without them pays nothing.
"""

import asyncio
import contextlib
import errno
from collections.abc import Callable
from functools import partial
from typing import Final

from kedge.node.network import ruleset
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.network.nftables.batch import OWNER, PERSIST, Batch
from kedge.node.network.nftables.channel import NftablesSocket
from kedge.node.network.ruleset import Ruleset
from kedge.node.network.table_replacement import cover_name, delete_tables, replace_table

_LACKING: Final = (errno.EINVAL, errno.EOPNOTSUPP)


class PolicyTable:
    """The table of one node. Its socket is opened with the first change."""

    def __init__(self, link: str, namespace: NetworkPlace = MACHINE) -> None:
        self._namespace = namespace
        self.name: Final = f"{link}_policies"
        self._flags = OWNER | PERSIST
        self._channel: NftablesSocket | None = None
        self._lock = asyncio.Lock()

    async def rewrite(self, content: Callable[[], Ruleset]) -> None:
        """Replace the whole table, also that of a previous agent. Packets meet the old rules, the
        new ones or both. Raises OSError; the table is unchanged then."""
        async with self._lock:
            await asyncio.to_thread(lambda: self._write(content()))

    async def apply(self, change: Callable[[str], Batch]) -> None:
        """Apply a change. Raises OSError; the table is unchanged then."""
        async with self._lock:
            # In a thread: how much there is to encode is up to the users.
            await asyncio.to_thread(lambda: self._open().apply(change(self.name)))

    async def clear(self) -> None:
        """Remove the table. Idempotent. Raises OSError."""
        async with self._lock:
            await asyncio.to_thread(self._delete)

    def _open(self) -> NftablesSocket:
        if self._channel is None:
            self._channel = NftablesSocket(self._namespace)
        return self._channel

    def _write(self, content: Ruleset) -> None:
        channel = self._open()
        for flags in dict.fromkeys((self._flags, 0)):
            build = partial(ruleset.replacement, flags=flags, parts=[content])
            try:
                replace_table(channel, self.name, build)
            except OSError as error:
                # PERSIST came with kernel 6.9.
                if error.errno not in _LACKING or not flags:
                    raise
                continue
            self._flags = flags
            return

    def _delete(self) -> None:
        delete_tables(self._open(), self.name, cover_name(self.name))

    def close(self) -> None:
        """Close the socket; the table stays."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def remove(self) -> None:
        """Remove the table of a node that ends. Idempotent."""
        self.close()
        with contextlib.suppress(OSError):
            self._delete()
        self.close()
