"""Being told of changes to files."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.node.host.inotify import Inotify


@pytest.fixture
async def inotify() -> AsyncIterator[Inotify]:
    made = Inotify()
    yield made
    made.close()


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


async def happens(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()
    event.clear()


async def test_everybody_who_waits_for_a_file_is_told(tmp_path: Path, inotify: Inotify) -> None:
    path = tmp_path / "log"
    path.touch()
    one, other = asyncio.Event(), asyncio.Event()
    with inotify.watching(str(path), one):
        with inotify.watching(str(path), other):
            append(path)
            await happens(one)
            await happens(other)
        # Who no longer waits takes nothing away from the rest.
        one.clear()
        append(path)
        await happens(one)
        assert not other.is_set()


async def test_renaming_counts_as_a_change(tmp_path: Path, inotify: Inotify) -> None:
    path = tmp_path / "log"
    path.touch()
    event = asyncio.Event()
    with inotify.watching(str(path), event):
        os.rename(path, tmp_path / "aside")
        await happens(event)


async def test_a_file_that_is_not_there_is_nothing_to_fail_about(inotify: Inotify) -> None:
    with inotify.watching("/nowhere/at/all", asyncio.Event()):
        pass
