"""Records in the store by which servers agree on what only one of them may give away.

They are no objects of the API, and live for a few minutes: once an object is stored that has what
was claimed, every server sees it there.
"""

from collections.abc import Callable
from typing import Final

from kedge.storage.store import RevisionConflict, Store, StoreEntry

PREFIX: Final = "/kedge/"
_TRIES: Final = 5


async def claim(
    store: Store,
    key: str,
    value: bytes,
    is_free: Callable[[StoreEntry], bool],
    seconds: int,
) -> StoreEntry | None:
    """Write a record that lives for so long, and return it; None if there is one that is not free
    to be replaced."""
    expect = 0
    for _ in range(_TRIES):
        try:
            return await store.put(key, value, expect=expect, ttl=seconds)
        except RevisionConflict as race:
            if race.current is not None and not is_free(race.current):
                return None
            expect = race.current.revision if race.current is not None else 0
    return None


async def drop(store: Store, key: str, up_to: int) -> None:
    """Delete a record, unless it was written after a revision; raises StoreError."""
    found = await store.get(key)
    if found is None or found.revision > up_to:
        return
    try:
        await store.delete(key, expect=found.revision)
    except RevisionConflict:
        return  # another server has it now, or deleted it
