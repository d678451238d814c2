import asyncio
from pathlib import Path

from kedge.apiserver.followed_file import AGAIN_SECONDS, FollowedFile
from kedge.testing.clock import FakeClock


async def test_each_change_is_told_once_and_again_if_it_could_not_be_used(tmp_path: Path) -> None:
    path, clock = tmp_path / "file", FakeClock()
    path.write_text("1")
    followed = FollowedFile(path, clock)
    told: list[str] = []

    async def changed() -> bool:
        told.append(path.read_text())
        return len(told) != 1

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(followed.follow(changed))
        await clock.advance(10)
        assert told == []
        path.write_text("22")
        await clock.advance(5)
        assert told == ["22"]
        await clock.advance(AGAIN_SECONDS + 5)
        assert told == ["22", "22"]
        path.unlink()
        await clock.advance(10)
        path.write_text("333")
        await clock.advance(5)
        assert told == ["22", "22", "333"]
        task.cancel()
