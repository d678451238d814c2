"""What every runtime promises; one suite, run on each implementation.

The programs here only wait: what real programs see and suffer is in embedded/.
"""

import asyncio
import contextlib
import functools
import os
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path

import pytest

from kedge.machinery.clock import SystemClock
from kedge.node.images.image import HOST_IMAGE, LocalImage
from kedge.node.runtime.cri.connection import CriConnection
from kedge.node.runtime.cri.cri_runtime import CriRuntime
from kedge.node.runtime.embedded import EmbeddedRuntime
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ContainerEvent,
    ContainerLimits,
    NotFoundError,
    PodSandbox,
    RunState,
    Runtime,
    RuntimeFailure,
    SandboxConfig,
)
from kedge.testing import container_daemon, container_daemons
from kedge.testing.container_daemon import RuntimeDaemon
from kedge.testing.runtime import ContainerRun, FakeRuntime

WAITING = ("sleep", "100000")
GROUP = f"/kedge-test-{os.getpid()}"
IMAGE = "host"
"""The machine's own files; container runtimes have an image of this name."""


class Machine:
    """Images: the machine's own file system only."""

    def get(self, id_: str) -> LocalImage | None:
        return HOST_IMAGE if id_ == "host" else None

    def hold(self, id_: str, container: str) -> None: ...

    def release(self, container: str) -> None: ...

    def release_others(self, containers: Collection[str]) -> None: ...


def fake() -> FakeRuntime:
    """The one that tests of the node agent use, with programs that a mere signal does not end."""
    runtime = FakeRuntime(SystemClock())
    runtime.lives = {name: [ContainerRun(obeys_after=None)] for name in ("main", "one", "two")}
    return runtime


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RuntimeDaemon]]:
    """One daemon of a kind for all tests: a node sees only its own sandboxes."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def started(name: str) -> RuntimeDaemon:
            if reason := container_daemons.lacks(name):
                pytest.skip(reason)
            place = tmp_path_factory.mktemp(name)
            running = stack.enter_context(container_daemons.running(name, place))
            running.load(container_daemon.box(), f"docker.io/library/{IMAGE}:latest")
            return running

        yield started


@pytest.fixture(params=["fake", "embedded", *container_daemons.names()])
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runtime]:
    if request.param == "fake":
        opened = fake()
        yield opened
        await opened.close()
        return
    if request.param in container_daemons.names():
        daemon: RuntimeDaemon = request.getfixturevalue("daemons")(request.param)
        directory = tmp_path / "runtime"
        cri = await CriRuntime.connect(directory, CriConnection(daemon.socket), str(tmp_path)[-60:])
        yield cri
        made = cri.cgroups
        await cri.shutdown()
        if made is not None:
            made.group(GROUP).remove()
        return
    embedded = await EmbeddedRuntime.open(tmp_path / "runtime", Machine())
    yield embedded
    await embedded.shutdown()


async def pod(runtime: Runtime, name: str = "web", attempt: int = 0) -> PodSandbox:
    return await runtime.run_sandbox(
        SandboxConfig(
            namespace="default",
            name=name,
            uid=f"uid-of-{name}",
            attempt=attempt,
            cgroup_parent=f"{GROUP}/{uuid.uuid4()}",
            labels={"app": name},
            annotations={"note": "kept"},
        )
    )


def waiting(name: str = "main", attempt: int = 0) -> ContainerConfig:
    return ContainerConfig(
        name=name,
        image=IMAGE,
        attempt=attempt,
        image_name="example.org/it:1",
        command=WAITING,
        labels={"hash": "abc"},
        annotations={"restarts": "2"},
    )


async def running(runtime: Runtime, sandbox: PodSandbox, name: str = "main") -> str:
    container = await runtime.create_container(sandbox.id, waiting(name))
    await runtime.start_container(container)
    return container


async def events(runtime: Runtime, count: int, ready: asyncio.Event) -> list[ContainerEvent]:
    """The first so many events from the moment `ready` is set."""
    seen: list[ContainerEvent] = []
    watch = aiter(runtime.watch())
    following = asyncio.ensure_future(anext(watch))
    # One turn of the loop and one answer: from then on nothing is missed.
    await runtime.sandboxes()
    ready.set()
    while len(seen) < count - 1:
        seen.append(await following)
        following = asyncio.ensure_future(anext(watch))
    return [*seen, await following]


async def test_a_sandbox_is_listed_as_it_was_asked_for(runtime: Runtime) -> None:
    made = await pod(runtime)
    assert made.ready
    assert (made.namespace, made.name, made.uid) == ("default", "web", "uid-of-web")
    assert made.labels == {"app": "web"}
    assert made.annotations == {"note": "kept"}
    assert [each.id for each in await runtime.sandboxes()] == [made.id]


async def test_a_container_is_created_runs_and_ends(runtime: Runtime) -> None:
    sandbox = await pod(runtime)
    container = await runtime.create_container(sandbox.id, waiting(attempt=3))
    created = await runtime.container(container)
    assert created.state is RunState.CREATED
    assert created.created_at > 0
    assert (created.sandbox, created.name, created.attempt) == (sandbox.id, "main", 3)
    assert (created.image, created.image_name) == (IMAGE, "example.org/it:1")
    assert (created.labels, created.annotations) == ({"hash": "abc"}, {"restarts": "2"})

    await runtime.start_container(container)
    started = await runtime.container(container)
    assert started.state is RunState.RUNNING
    assert started.started_at >= created.created_at

    await runtime.stop_container(container, 0)
    ended = await runtime.container(container)
    assert ended.state is RunState.EXITED
    assert (ended.exit_code, ended.reason) == (137, "Error")
    assert ended.finished_at >= started.started_at
    assert [each.id for each in await runtime.containers()] == [container]


async def test_what_happens_is_told_in_order(runtime: Runtime) -> None:
    sandbox = await pod(runtime)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        seen = group.create_task(events(runtime, 3, ready))
        await ready.wait()
        container = await running(runtime, sandbox)
        await runtime.stop_container(container, 0)
        await runtime.remove_container(container)
    assert [each.type for each in seen.result()] == ["started", "exited", "removed"]
    assert {each.container for each in seen.result()} == {container}
    assert {each.pod_uid for each in seen.result()} == {"uid-of-web"}


async def test_what_is_not_there_is_not_found_but_ends_and_goes(runtime: Runtime) -> None:
    with pytest.raises(NotFoundError):
        await runtime.container("nobody")
    with pytest.raises(NotFoundError):
        await runtime.start_container("nobody")
    with pytest.raises(NotFoundError):
        await runtime.create_container("nowhere", waiting())
    with pytest.raises(NotFoundError):
        await runtime.update_container("nobody", ContainerLimits(cpu_shares=2))
    await runtime.stop_container("nobody", 0)
    await runtime.remove_container("nobody")
    await runtime.stop_sandbox("nowhere")
    await runtime.remove_sandbox("nowhere")


async def test_a_stopped_sandbox_has_no_running_container_and_is_still_listed(
    runtime: Runtime,
) -> None:
    sandbox = await pod(runtime)
    containers = [await running(runtime, sandbox, name) for name in ("one", "two")]
    await runtime.stop_sandbox(sandbox.id)
    assert [each.ready for each in await runtime.sandboxes()] == [False]
    states = {each.id: each.state for each in await runtime.containers()}
    assert states == dict.fromkeys(containers, RunState.EXITED)


async def test_a_removed_sandbox_takes_its_containers_along_and_no_others(runtime: Runtime) -> None:
    sandbox, other = await pod(runtime), await pod(runtime, "other")
    await running(runtime, sandbox)
    kept = await running(runtime, other)
    await runtime.remove_sandbox(sandbox.id)
    assert [each.id for each in await runtime.sandboxes()] == [other.id]
    assert [each.id for each in await runtime.containers()] == [kept]


async def test_a_running_container_can_be_removed(runtime: Runtime) -> None:
    container = await running(runtime, await pod(runtime))
    await runtime.remove_container(container)
    assert await runtime.containers() == []
    with pytest.raises(NotFoundError):
        await runtime.container(container)


async def test_a_container_starts_once(runtime: Runtime) -> None:
    container = await running(runtime, await pod(runtime))
    with pytest.raises(RuntimeFailure):
        await runtime.start_container(container)
    await runtime.stop_container(container, 0)
    with pytest.raises(RuntimeFailure):
        await runtime.start_container(container)


async def test_stopping_what_has_ended_returns_at_once(runtime: Runtime) -> None:
    container = await running(runtime, await pod(runtime))
    await runtime.stop_container(container, 0)
    before = await runtime.container(container)
    async with asyncio.timeout(5):
        await runtime.stop_container(container, 60)
    assert await runtime.container(container) == before


async def test_the_next_attempt_of_a_container_stands_beside_the_last(runtime: Runtime) -> None:
    sandbox = await pod(runtime)
    first = await running(runtime, sandbox)
    await runtime.stop_container(first, 0)
    second = await runtime.create_container(sandbox.id, waiting(attempt=1))
    await runtime.start_container(second)
    listed = {each.attempt: (each.id, each.state) for each in await runtime.containers()}
    assert listed == {0: (first, RunState.EXITED), 1: (second, RunState.RUNNING)}
