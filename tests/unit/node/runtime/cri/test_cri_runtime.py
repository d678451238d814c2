"""The decisions of CriRuntime, in front of a runtime in memory; containerd has tests of its own."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from kedge.node.runtime.cri import cri_runtime, translation
from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.cri.cri_runtime import CriRuntime
from kedge.node.runtime.runtime import (
    ContainerConfig,
    NotFoundError,
    RunState,
    RuntimeFailure,
    SandboxConfig,
)
from kedge.testing.clock import FakeClock

SANDBOX = SandboxConfig(namespace="default", name="web", uid="u", host_network=True)


class FakeConnection:
    """One sandbox with one container, whose state a test sets."""

    def __init__(self) -> None:
        spec = ContainerConfig(name="main", image="i")
        record = translation.container_record(spec, "s", SANDBOX)
        config = translation.container_config(spec, SANDBOX, (), record, "n")
        self.annotations = config.annotations
        self.state = m.CREATED
        self.calls: list[str] = []

    async def call(self, method: Any, request: Any, seconds: float = 0) -> Any:
        self.calls.append(method.name)
        match method.name:
            case "ListPodSandbox":
                annotations = translation.sandbox_config(SANDBOX, "n").annotations
                return m.CriSandboxes(items=[m.CriSandbox(id="s", annotations=annotations)])
            case "ListContainers":
                assert request.filter.label_selector == {translation.NODE_LABEL: "n"}
                listed = m.CriContainer(
                    id="c", pod_sandbox_id="s", state=self.state, annotations=self.annotations
                )
                return m.CriContainers(containers=[listed])
            case "ContainerStatus":
                if request.container_id != "c":
                    raise NotFoundError(request.container_id)
                status = m.CriContainerStatus(
                    id="c", state=self.state, annotations=self.annotations
                )
                return m.CriContainerStatusResponse(status=status)
            case "Status":
                unready = m.CriCondition(type="NetworkReady", message="no network")
                return m.CriRuntimeStatus(status=m.CriConditions(conditions=[unready]))
        return m.CriContainerId(container_id="c")

    async def close(self) -> None: ...


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def runtime(connection: FakeConnection, tmp_path: Path) -> CriRuntime:
    return CriRuntime(tmp_path, cast(Any, connection), "n", clock=FakeClock())


async def test_lists_are_those_of_the_node(runtime: CriRuntime) -> None:
    assert [(each.id, each.uid) for each in await runtime.sandboxes()] == [("s", "u")]
    assert [(each.id, each.state) for each in await runtime.containers()] == [
        ("c", RunState.CREATED)
    ]


async def test_a_container_of_others_is_not_found(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    connection.annotations = {}
    with pytest.raises(NotFoundError, match="does not belong to this node"):
        await runtime.container("c")


async def test_an_ended_container_is_asked_for_once(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    connection.state = m.EXITED
    await runtime.containers()
    connection.calls.clear()
    assert [each.state for each in await runtime.containers()] == [RunState.EXITED]
    assert connection.calls == ["ListContainers"]


async def test_changes_without_the_node_become_events(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    watch = aiter(runtime.watch())
    await runtime.poll()
    connection.state = m.RUNNING
    await runtime.poll()
    connection.state = m.EXITED
    await runtime.poll()
    await runtime.poll()
    told = [await anext(watch) for _ in range(2)]
    assert [(each.type, each.pod_uid) for each in told] == [("started", "u"), ("exited", "u")]


async def test_a_container_needs_its_sandbox(runtime: CriRuntime) -> None:
    with pytest.raises(NotFoundError, match="there is no sandbox x"):
        await runtime.create_container("x", ContainerConfig(name="main", image="i"))
    with pytest.raises(NotFoundError, match="there is no sandbox x"):
        await runtime.dial("x", 80)


async def test_memory_is_not_exceeded_on_purpose(runtime: CriRuntime) -> None:
    with pytest.raises(RuntimeFailure, match="kedge's own runtime only"):
        await runtime.exceed_memory("c")


def test_the_kernel_tells_the_owner_of_a_process() -> None:
    found = cri_runtime._process(os.getpid())
    assert (found.pid, found.user, found.group) == (os.getpid(), os.getuid(), os.getgid())
    assert cri_runtime._process(0).groups == ()
