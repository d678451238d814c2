"""Who survives whom: containers, agents, supervisors."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path

from tests.contract.embedded.workbench import (
    GROUPS,
    Bench,
    containers_left,
    descriptors_of,
    gone,
    needs_root,
    processes_in,
    resident_of,
)

from kedge.node.runtime.runtime import (
    ContainerSecurity,
    PidMode,
    RunState,
    RuntimeLevel,
)

pytestmark = needs_root


async def test_containers_outlive_the_agent_and_the_next_one_learns_how_they_ended(
    bench: Bench,
) -> None:
    sandbox = await bench.pod()
    stays = await bench.start(sandbox, "sleep", "1000", annotations={"hash": "1"})
    ends = await bench.start(sandbox, "sh", "-c", "sleep 0.05; exit 42")
    supervisor = bench.runtime.supervisor
    await bench.runtime.close()
    await bench.open()
    assert bench.runtime.supervisor == supervisor
    await bench.ended(ends)
    seen = {each.id: each for each in await bench.runtime.containers()}
    assert seen[stays].state is RunState.RUNNING
    assert seen[stays].annotations == {"hash": "1"}
    assert (seen[ends].exit_code, seen[ends].reason) == (42, "Error")
    assert [each.ready for each in await bench.runtime.sandboxes()] == [True]


async def test_sockets_outlive_the_agent_and_the_supervisor(bench: Bench) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        address = own.getsockname()
        await bench.runtime.keep_sockets("test", [own.fileno()])
        supervisor = bench.runtime.supervisor
        os.kill(supervisor, signal.SIGKILL)
        await gone(supervisor)
        # The agent gives the socket to the next supervisor.
        assert await bench.runtime.sandboxes() == []
        assert bench.runtime.supervisor != supervisor
        await bench.runtime.close()
    await bench.open()
    [descriptor] = await bench.runtime.kept_sockets("test")
    with socket.socket(fileno=descriptor) as taken:
        assert taken.getsockname() == address
    await bench.runtime.keep_sockets("test", [])
    assert await bench.runtime.kept_sockets("test") == []


async def test_images_are_let_go_for_containers_that_are_no_more(bench: Bench) -> None:
    kept = await bench.create(await bench.pod(), "true")
    bench.images.hold("host", "removed-by-an-agent-that-was-killed-then")
    await bench.runtime.close()
    await bench.open()
    assert set(bench.images.held) == {kept}


async def test_containers_end_with_their_supervisor_and_nothing_is_left(bench: Bench) -> None:
    sandbox = await bench.pod(shared_pid=True)
    user = await bench.start(sandbox, "sleep", "1000", security=ContainerSecurity(user=1000))
    pooled = await bench.start(
        sandbox, "sleep", "1001", security=ContainerSecurity(pid=PidMode.POD)
    )
    never = await bench.create(sandbox, "sleep", "1002")
    pids = [(await bench.runtime.container(each)).pid for each in (user, pooled)]
    os.kill(bench.runtime.supervisor, signal.SIGKILL)
    for pid in pids:
        await gone(pid)
    seen = {each.id: each for each in await bench.runtime.containers()}
    for each in (user, pooled):
        assert (seen[each].state, seen[each].exit_code) == (RunState.EXITED, 137)
        assert seen[each].reason == "ContainerStatusUnknown"
    assert seen[never].state is RunState.CREATED
    assert [each.ready for each in await bench.runtime.sandboxes()] == [False]
    assert containers_left() == []
    _, said = await bench.run("echo", "again")
    assert said == "again\n"


async def test_who_escapes_the_parent_s_death_is_found_by_the_next_supervisor(bench: Bench) -> None:
    # A program that changes its user by a set-user-id file is not told of its parent's end.
    security = ContainerSecurity(pid=PidMode.HOST)
    container = await bench.start(
        await bench.pod(host_pid=True),
        "sh",
        "-c",
        "setsid sleep 1000 & sleep 1000",
        security=security,
    )
    status = await bench.runtime.execute(container, ["cat", "/proc/self/cgroup"], 10)
    assert status.exit_code == 0
    path = (await bench.runtime.container(container)).cgroup
    pids = processes_in(path)
    assert len(pids) == 3
    os.kill(bench.runtime.supervisor, signal.SIGKILL)
    await gone(bench.runtime.supervisor)
    await bench.runtime.containers()
    for pid in pids:
        await gone(pid)


async def test_a_supervisor_killed_at_any_moment_leaves_nothing_that_runs(bench: Bench) -> None:
    chance = random.Random(7)
    for number in range(12):
        sandbox = await bench.pod(f"pod{number}", shared_pid=number % 2 == 0)
        steps = [bench.start(sandbox, "sleep", "1000") for _ in range(3)]
        starting = asyncio.gather(*steps, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(starting), chance.uniform(0, 0.05))
        os.kill(bench.runtime.supervisor, signal.SIGKILL)
        await starting
        pids = processes_in(f"{GROUPS}/pod{number}/*")
        for each in await bench.runtime.containers():
            assert each.state is not RunState.RUNNING
        for pid in pids:
            await gone(pid)
        for left in await bench.runtime.sandboxes():
            await bench.runtime.remove_sandbox(left.id)
        assert containers_left() == []


async def test_there_is_one_supervisor_to_a_directory(bench: Bench) -> None:
    start = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from kedge.supervisor.__main__ import main; main(sys.argv[1])"
    )
    source = str(Path(sys.modules["kedge"].__file__ or "").parents[1])
    directory = str(bench.directory / "runtime")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-I", "-S", "-c", start, directory, source],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == f"another supervisor has {directory}\n"


async def test_many_start_at_once(bench: Bench) -> None:
    async def one(number: int) -> str:
        return await bench.start(await bench.pod(f"pod{number}"), "sleep", "1000")

    started: Sequence[Awaitable[str]] = [one(number) for number in range(20)]
    containers = await asyncio.gather(*started)
    states = {each.id: each.state for each in await bench.runtime.containers()}
    assert states == dict.fromkeys(containers, RunState.RUNNING)


async def test_the_supervisor_is_small_and_leaks_no_descriptors(bench: Bench) -> None:
    assert bench.runtime.level is RuntimeLevel.FULL
    await bench.run("true")
    before = descriptors_of(bench.runtime.supervisor)
    for _ in range(3):
        sandbox = await bench.pod(shared_pid=True)
        container = await bench.start(sandbox, "sleep", "100", tty=True, stdin=True)
        await bench.runtime.execute(container, ["true"], 10)
        stream = await bench.runtime.attach(container, stdin=True)
        await stream.close()
        await bench.runtime.remove_sandbox(sandbox.id)
    assert descriptors_of(bench.runtime.supervisor) == before
    assert resident_of(bench.runtime.supervisor) < 15_000
