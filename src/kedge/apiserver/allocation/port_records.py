"""PortRecords: node ports that Services are about to get, in a store that servers share.

A record is written before its Service, as an IPAddress is, and lives for minutes only: later every
server sees the port in the Service.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kedge.apiserver.allocation.ledger import RECORD_SECONDS
from kedge.apiserver.allocation.node_ports import PortInUse
from kedge.apiserver.several.records import PREFIX, claim, drop
from kedge.machinery.clock import Clock
from kedge.storage.store import Store, StoreEntry, StoreError

log = logging.getLogger(__name__)

KEYS: Final = f"{PREFIX}nodeports/"
BUSY_SECONDS: Final = 5.0
"""For how long a port is not tried again that another server claims."""


class PortRecords:
    """Claims node ports. The owner must `run` it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._busy: dict[int, float] = {}
        self._unused: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    def is_busy(self, port: int) -> bool:
        until = self._busy.get(port)
        if until is not None and self._clock.monotonic() >= until:
            del self._busy[port]
            return False
        return until is not None

    async def store(self, port: int, service: str, is_free: Callable[[int], bool]) -> int:
        """Return the revision of the record, once it is stored; raises PortInUse. `is_free` says
        whether a record of a revision may be replaced."""

        def may_replace(entry: StoreEntry) -> bool:
            return is_free(entry.revision)

        key = f"{KEYS}{port}"
        entry = await claim(self._store, key, service.encode(), may_replace, RECORD_SECONDS)
        if entry is None:
            self._busy[port] = self._clock.monotonic() + BUSY_SECONDS
            raise PortInUse(port)
        return entry.revision

    def delete_soon(self, port: int, up_to: int) -> None:
        """Have `run` delete the record of a port, unless it was written after a revision."""
        self._unused.put_nowait((port, up_to))

    async def run(self) -> None:
        """Delete records that are no longer needed, until cancelled."""
        while True:
            port, up_to = await self._unused.get()
            try:
                await drop(self._store, f"{KEYS}{port}", up_to)
            except StoreError as error:
                # It only blocks its port for some time.
                log.warning("record of a node port not deleted port=%d error=%s", port, error)
