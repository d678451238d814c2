"""Compaction by age: history is kept for some minutes, then dropped."""

import logging
from collections import deque

from kedge.machinery.clock import Clock
from kedge.storage.store import DiskFull, RevisionConflict, Store, StoreError

STEPS = 10
"""How many notes are taken per age; history lives between one age and one step more."""

MARK = "compact_rev_key"
"""Where the last compaction is noted, under the name that every Kubernetes API server uses."""

log = logging.getLogger(__name__)


async def keep_history(store: Store, clock: Clock, age: float = 300) -> None:
    """Compact for ever, so that what is older than `age` seconds goes and the rest stays."""
    notes: deque[tuple[float, int]] = deque()
    while True:
        if not notes or notes[-1][1] != store.revision:
            notes.append((clock.monotonic(), store.revision))
        await clock.sleep(age / STEPS)
        if outlived := take_outlived(notes, clock.monotonic() - age):
            await _compact(store, outlived)


def take_outlived(notes: deque[tuple[float, int]], moment: float) -> int:
    """Remove the notes taken up to the moment; returns the newest revision among them, or 0."""
    newest = 0
    while notes and notes[0][0] <= moment:
        newest = notes.popleft()[1]
    return newest


async def _compact(store: Store, revision: int) -> None:
    """Compact, unless another server does.

    The servers of one etcd agree by the mark: each writes there what it is about to compact, and
    whose comparison fails, lost. kube-apiserver does the same. The write also lets the revision
    rise on an idle store.
    """
    try:
        if await _mark(store, revision):
            await store.compact(revision)
    except StoreError as error:
        log.error("compaction failed revision=%d error=%s", revision, error)


async def _mark(store: Store, revision: int) -> bool:
    """Note what will be compacted; returns False if another server was first."""
    mark = await store.get(MARK)
    if mark is not None and mark.value.isdigit() and int(mark.value) >= revision:
        return False
    try:
        await store.put(MARK, str(revision).encode(), expect=mark.revision if mark else 0)
    except RevisionConflict:
        return False
    except DiskFull:
        return True  # compaction is what makes space
    return True
