"""What a container that may trace others can say to the supervisor in the name of its processes."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator

import pytest
from tests.contract.embedded.workbench import Bench, needs_root

from kedge.node.runtime.runtime import (
    ContainerSecurity,
    PidMode,
    PodSandbox,
    RunState,
    RuntimeContainer,
    RuntimeFailure,
)

pytestmark = needs_root

# Takes the socket by which a new process tells the supervisor how it goes, and speaks to the
# supervisor itself. What it says is its argument.
FORGER = """
import ctypes, json, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
said = [each.encode() for each in sys.argv[2:]]
times = int(sys.argv[1])
taken = set()
held = []

def sockets(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
            yield int(name)

def forge(pid):
    process = os.pidfd_open(int(pid))
    try:
        for number in sockets(pid):
            copy = libc.syscall(438, process, number, 0)
            if copy < 0:
                continue
            status = socket.socket(fileno=copy)
            taken.add(pid)
            status.setblocking(False)
            for _ in range(times):
                for each in said:
                    status.send(each)
            print("forged", flush=True)
            held.append(status)
    finally:
        os.close(process)

print("ready", flush=True)
end = time.monotonic() + 8
while time.monotonic() < end:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) > 1 and int(name) != os.getpid() and name not in taken:
            try:
                forge(name)
            except OSError:
                pass
    if len(taken) >= 3:
        break
for each in held:
    each.close()
print("done", flush=True)
time.sleep(1000)
"""
TRACING = ContainerSecurity(pid=PidMode.POD, add_capabilities=("SYS_PTRACE",))


async def forger(bench: Bench, times: int, *said: str) -> PodSandbox:
    """A pod whose processes are spoken for by one of its containers."""
    pod = await bench.pod("forged", shared_pid=True)
    argv = ("/usr/bin/python3", "-c", FORGER, str(times), *said)
    container = await bench.start(pod, *argv, security=TRACING)
    # Not by a command in that pod, which it would speak for.
    async with asyncio.timeout(10):
        while "ready" not in bench.said(await bench.runtime.container(container)):
            await bench.shell("sleep 0.02")
    return pod


async def tries(bench: Bench, pod: PodSandbox, times: int) -> list[RuntimeContainer]:
    """Containers in the pod that were started, also if that failed or never came to an end."""
    started = []
    for _ in range(times):
        container = await bench.create(
            pod, "sleep", "1000", security=ContainerSecurity(pid=PidMode.POD), image="host"
        )
        with contextlib.suppress(RuntimeFailure, TimeoutError):
            async with asyncio.timeout(3):
                await bench.runtime.start_container(container)
        started.append(await bench.runtime.container(container))
    return started


@pytest.fixture
async def victim() -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the machine that is nobody's container."""
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    yield process
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def test_a_container_cannot_pass_a_process_of_the_machine_off_as_its_own(
    bench: Bench, victim: asyncio.subprocess.Process
) -> None:
    """A command in it would enter the namespaces of that process, and be on the machine."""
    pod = await forger(bench, 1, json.dumps({"pid": victim.pid}), json.dumps({"pid": victim.pid}))
    started = await tries(bench, pod, 8)
    assert victim.pid not in [each.pid for each in started]
    for each in started:
        if each.state is RunState.RUNNING:
            done = await bench.runtime.execute(each.id, ["readlink", "/proc/self/ns/net"], 5)
            assert done.stdout.decode().strip() != os.readlink("/proc/self/ns/net")
    async with asyncio.timeout(10):
        await bench.runtime.remove_sandbox(pod.id)
    assert victim.returncode is None


@pytest.mark.parametrize(
    "said",
    ["not json", "[" * 60_000, "[]", '{"error": 1}', '{"terminal": true}', '{"note": "again"}'],
)
async def test_what_makes_no_sense_or_never_ends_keeps_nobody_waiting(
    bench: Bench, said: str
) -> None:
    pod = await forger(bench, 100_000, said)
    started = await tries(bench, pod, 4)
    async with asyncio.timeout(10):
        assert await bench.shell("echo well") == "well\n"
        await bench.runtime.remove_sandbox(pod.id)
    assert all(len(each.shortfalls) < 3 for each in started)


async def test_a_copy_of_the_socket_does_not_bring_a_dead_container_back(bench: Bench) -> None:
    pod = await forger(bench, 0)
    for each in await tries(bench, pod, 3):
        async with asyncio.timeout(10):
            await bench.runtime.stop_container(each.id, 0)
            assert (await bench.runtime.container(each.id)).state is RunState.EXITED
    async with asyncio.timeout(10):
        await bench.runtime.remove_sandbox(pod.id)


@pytest.mark.parametrize("length", [40_000, 120_000])
async def test_a_very_long_name_of_a_program_is_told_in_part(bench: Bench, length: int) -> None:
    pod = await bench.pod()
    with pytest.raises(RuntimeFailure, match='exec: "/xxx'):
        await bench.start(pod, "/" + "x" * length)
    container = await bench.start(pod, "sleep", "1000")
    with pytest.raises(RuntimeFailure, match='exec: "/xxx'):
        await bench.runtime.execute(container, ["/" + "x" * length], 10)
