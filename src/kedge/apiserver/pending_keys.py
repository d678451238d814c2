"""Keys of objects that one task looks at, one after the other."""

import asyncio


class PendingKeys:
    """Each key is there once; the first that was added comes first."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._added = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._keys

    def add(self, key: str) -> None:
        self._keys.setdefault(key)
        self._added.set()

    async def next(self) -> str:
        """Wait for a key, and remove it."""
        while not self._keys:
            self._added.clear()
            await self._added.wait()
        del self._keys[key := next(iter(self._keys))]
        return key
