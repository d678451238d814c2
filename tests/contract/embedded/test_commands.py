"""Commands in containers."""

import asyncio
import os

import pytest
from tests.contract.embedded.workbench import (
    Bench,
    needs_root,
    processes_in,
    read,
    write_all,
)

from kedge.node.runtime.runtime import (
    ContainerSecurity,
    RuntimeFailure,
)

pytestmark = needs_root


async def test_a_command_is_what_the_container_is(bench: Bench) -> None:
    security = ContainerSecurity(user=1234, group=99, groups=(7,), drop_capabilities=("ALL",))
    container = await bench.start(
        await bench.pod(), "sleep", "1000", security=security, env=[("A", "b")], working_dir="/var"
    )
    script = "id -u; id -G; echo $A; pwd; grep CapBnd /proc/self/status; exit 5"
    done = await bench.runtime.execute(container, ["sh", "-c", script], 10)
    assert done.exit_code == 5
    assert done.stdout == b"1234\n99 7\nb\n/var\nCapBnd:\t0000000000000000\n"
    path = (await bench.runtime.container(container)).cgroup
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.runtime.execute(container, ["sleep", "0.3"], 10))
        await bench.runtime.execute(container, ["sleep", "0.1"], 10)
        assert len(processes_in(path)) == 2


async def test_a_command_that_is_not_there_says_so(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    with pytest.raises(RuntimeFailure, match='exec: "nope": executable file not found'):
        await bench.runtime.execute(container, ["nope"], 10)
    await bench.runtime.stop_container(container, 0)
    with pytest.raises(RuntimeFailure, match="not running"):
        await bench.runtime.execute(container, ["true"], 10)


async def test_a_command_that_takes_too_long_ends_with_all_it_began(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    with pytest.raises(TimeoutError):
        await bench.runtime.execute(
            container, ["sh", "-c", "sleep 777 & setsid sleep 778 & sleep 779"], 0.3
        )
    async with asyncio.timeout(10):
        while True:
            seen = await bench.runtime.execute(container, ["ps", "ax", "-o", "args="], 10)
            if b"sleep 77" not in seen.stdout:
                break


async def test_a_command_reads_and_writes_as_much_as_it_likes(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    stream = await bench.runtime.exec_stream(container, ["wc", "-c"], tty=False, stdin=True)
    data = b"x" * 3_000_000
    await asyncio.to_thread(write_all, stream.stdin, data)
    os.close(stream.stdin)
    stream.stdin = -1
    assert await read(stream.stdout) == b"3000000\n"
    assert await stream.wait() == 0
    await stream.close()
    done = await bench.runtime.execute(container, ["head", "-c", "20000000", "/dev/zero"], 20)
    assert len(done.stdout) == 256 << 10


async def test_a_command_with_a_terminal_can_be_resized_and_left(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    script = "tty; read x; stty size; sleep 555"
    stream = await bench.runtime.exec_stream(container, ["sh", "-c", script], tty=True, stdin=True)
    first = await read(stream.stdout, lambda data: b"\n" in data)
    assert first.startswith(b"/dev/pts/")
    await stream.resize(120, 40)
    os.write(stream.stdin, b"\n")
    assert b"40 120" in await read(stream.stdout, lambda data: b"40 120" in data)
    await stream.close()
    seen = await bench.runtime.execute(container, ["ps", "ax", "-o", "args="], 10)
    assert b"sleep 555" not in seen.stdout
