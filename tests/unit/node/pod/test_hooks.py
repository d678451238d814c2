import asyncio

import pytest

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import ExecAction, HTTPGetAction, LifecycleHandler, SleepAction
from kedge.node.pod.hooks import HookFailure, run_hook
from kedge.node.runtime.runtime import ContainerConfig, ExecResult, SandboxConfig
from kedge.testing.clock import FakeClock
from kedge.testing.runtime import FakeRuntime

CONTAINER = Container(name="ctr")


async def running(clock: FakeClock) -> tuple[FakeRuntime, str]:
    runtime = FakeRuntime(clock)
    sandbox = await runtime.run_sandbox(SandboxConfig(namespace="n", name="p", uid="u"))
    identity = await runtime.create_container(sandbox.id, ContainerConfig(name="ctr", image="i"))
    await runtime.start_container(identity)
    return runtime, identity


async def run(handler: LifecycleHandler, runtime: FakeRuntime, identity: str) -> None:
    clock = runtime._clock
    await run_hook(handler, CONTAINER, identity, ip="127.0.0.1", runtime=runtime, clock=clock)


async def test_a_command_must_succeed() -> None:
    runtime, identity = await running(FakeClock())
    handler = LifecycleHandler(exec=ExecAction(command=["do", "it"]))
    await run(handler, runtime, identity)
    runtime.commands["do", "it"] = ExecResult(exit_code=4, stderr=b"oh")
    with pytest.raises(HookFailure, match="exited with 4: oh"):
        await run(handler, runtime, identity)


async def test_any_answer_is_good_enough() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    runtime, identity = await running(FakeClock())
    handler = LifecycleHandler(httpGet=HTTPGetAction(port=port, path="/bye"))
    await run(handler, runtime, identity)
    server.close()
    await server.wait_closed()
    with pytest.raises(HookFailure, match="connection refused"):
        await run(handler, runtime, identity)


async def test_a_pause_lasts_as_long_as_it_says() -> None:
    clock = FakeClock()
    runtime, identity = await running(clock)
    pause = asyncio.ensure_future(
        run(LifecycleHandler(sleep=SleepAction(seconds=5)), runtime, identity)
    )
    await clock.advance(4)
    assert not pause.done()
    await clock.advance(1)
    assert pause.done()
