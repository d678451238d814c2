import asyncio

from kedge.node.runtime.owned_tasks import OwnedTasks


async def test_tasks_end_with_their_owner() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def answer() -> int:
        return 3

    tasks = OwnedTasks()
    for name in ("a", "b"):
        tasks.start(wait(name))
    assert await tasks.start(answer()) == 3
    await tasks.close()
    await tasks.close()
    assert sorted(ended) == ["a", "b"]
