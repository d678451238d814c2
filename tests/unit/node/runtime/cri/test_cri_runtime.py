"""The decisions of CriRuntime, in front of a runtime in memory; containerd has tests of its own."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from kedge.node.runtime.cri import cri_runtime, leftover_groups, log_rotation, translation
from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.cri.cri_runtime import CriRuntime
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ContainerLimits,
    NotFoundError,
    RunState,
    RuntimeFailure,
    RuntimeFeatures,
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
        self.sandboxes = {"s": translation.sandbox_config(SANDBOX, "n").annotations}
        self.containers = {"c": self.annotations}
        self.calls: list[str] = []
        self.failing = ""
        self.stops = 1
        """How often the container must be stopped before it has ended."""
        self.info: dict[str, str] = {}
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        """Happens once, while a list is under way."""

    async def call(self, method: Any, request: Any, seconds: float = 0) -> Any:
        self.calls.append(method.name)
        if method.name == self.failing:
            raise RuntimeFailure("failed")
        match method.name:
            case "ListPodSandbox":
                chosen = request.filter.id
                items = [
                    m.CriSandbox(id=id_, annotations=annotations)
                    for id_, annotations in self.sandboxes.items()
                    if not chosen or id_ == chosen
                ]
                await self._pass()
                return m.CriSandboxes(items=items)
            case "ListContainers":
                assert request.filter.label_selector == {translation.NODE_LABEL: "n"}
                listed = [
                    m.CriContainer(
                        id=id_, pod_sandbox_id="s", state=self.state, annotations=annotations
                    )
                    for id_, annotations in self.containers.items()
                ]
                await self._pass()
                return m.CriContainers(containers=listed)
            case "RunPodSandbox":
                self.sandboxes["new"] = request.config.annotations
                return m.CriSandboxId(pod_sandbox_id="new")
            case "RemovePodSandbox":
                self.sandboxes.pop(request.pod_sandbox_id)
                return None
            case "CreateContainer":
                self.containers["new"] = request.config.annotations
                return m.CriContainerId(container_id="new")
            case "ContainerStatus":
                if request.container_id != "c":
                    raise NotFoundError(request.container_id)
                status = m.CriContainerStatus(
                    id="c", state=self.state, annotations=self.annotations
                )
                return m.CriContainerStatusResponse(status=status, info=self.info)
            case "StopContainer":
                self.stops -= 1
                self.state = m.RUNNING if self.stops > 0 else m.EXITED
            case "ExecSync":
                return m.CriExecSyncResponse(exit_code=-1, stderr=b"command timed out")
            case "Status":
                unready = m.CriCondition(type="NetworkReady", message="no network")
                return m.CriRuntimeStatus(status=m.CriConditions(conditions=[unready]))
        return m.CriContainerId(container_id="c")

    async def _pass(self) -> None:
        if (happening := self.meanwhile) is not None:
            self.meanwhile = None
            await happening()

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


async def test_a_container_has_the_control_group_that_the_runtime_tells(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    sandbox = SandboxConfig(namespace="d", name="w", uid="u", cgroup_parent="/kedge/podu")
    record = translation.container_record(ContainerConfig(name="main", image="i"), "s", sandbox)
    connection.annotations = {translation.SPEC: msgspec.json.encode(record).decode()}
    assert (await runtime.container("c")).cgroup == "/kedge/podu/c"
    connection.info = {"info": '{"runtimeSpec":{"linux":{"cgroupsPath":"/kedge/podu/crio-c"}}}'}
    assert (await runtime.container("c")).cgroup == "/kedge/podu/crio-c"
    # Later answers are not verbose.
    connection.info = {}
    assert (await runtime.container("c")).cgroup == "/kedge/podu/crio-c"


async def test_other_limits_for_a_container_that_is_gone_are_not_found(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    connection.failing = "UpdateContainerResources"
    with pytest.raises(NotFoundError):
        await runtime.update_container("gone", ContainerLimits())
    with pytest.raises(RuntimeFailure, match="failed"):
        await runtime.update_container("c", ContainerLimits())


async def test_a_command_that_took_too_long_is_told(runtime: CriRuntime) -> None:
    with pytest.raises(TimeoutError, match="ExecSync took too long: command timed out"):
        await runtime.execute("c", ["sleep", "60"], 1)


async def test_what_runs_is_ended_before_it_is_removed(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    connection.state = m.RUNNING
    await runtime.stop_sandbox("s")
    assert connection.calls.index("StopContainer") < connection.calls.index("StopPodSandbox")
    connection.state, connection.stops = m.RUNNING, 1
    runtime._ended.clear()
    connection.calls.clear()
    await runtime.remove_container("c")
    assert connection.calls.index("StopContainer") < connection.calls.index("RemoveContainer")
    assert stops_of(connection) == 1


def stops_of(connection: FakeConnection) -> int:
    return connection.calls.count("StopContainer")


async def test_a_container_that_has_ended_is_not_stopped_again(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    connection.state = m.RUNNING
    await runtime.stop_container("c", 0)
    await runtime.stop_container("c", 60)
    assert stops_of(connection) == 1


async def test_a_sandbox_that_cannot_be_made_leaves_no_groups(
    runtime: CriRuntime, connection: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    monkeypatch.setattr(leftover_groups, "remove", lambda parent, managed: removed.append(parent))
    connection.failing = "RunPodSandbox"
    spec = SandboxConfig(namespace="d", name="w", uid="u", cgroup_parent="/kedge/podu")
    with pytest.raises(RuntimeFailure, match="failed"):
        await runtime.run_sandbox(spec)
    assert removed == ["/kedge/podu"]


async def test_users_of_its_own_are_refused_by_runtimes_without_them(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    spec = SandboxConfig(namespace="d", name="w", uid="u", first_id=65_536, host_network=True)
    with pytest.raises(RuntimeFailure, match="hostUsers: false need kedge's own runtime"):
        await runtime.run_sandbox(spec)
    assert connection.calls == []
    runtime.features = RuntimeFeatures(user_namespaces=True)
    assert (await runtime.run_sandbox(spec)).id == "new"


async def test_owners_are_those_that_the_container_sees(
    runtime: CriRuntime, connection: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = cri_runtime.ContainerProcessIds(7, 65_536, 65_537, [65_538])
    monkeypatch.setattr(cri_runtime, "_process", lambda pid: own)
    sandbox = SandboxConfig(namespace="d", name="w", uid="u", first_id=65_536)
    connection.sandboxes["s"] = translation.sandbox_config(sandbox, "n").annotations
    await runtime.sandboxes()
    connection.state = m.RUNNING
    seen = await runtime.container("c")
    assert (seen.user, seen.group, seen.groups) == (0, 1, [2])


async def test_memory_is_not_exceeded_on_purpose(runtime: CriRuntime) -> None:
    with pytest.raises(RuntimeFailure, match="kedge's own runtime only"):
        await runtime.exceed_memory("c")


def test_the_kernel_tells_the_owner_of_a_process() -> None:
    found = cri_runtime._process(os.getpid())
    assert (found.pid, found.user, found.group) == (os.getpid(), os.getuid(), os.getgid())
    assert cri_runtime._process(0).groups == ()


async def test_a_container_that_is_created_during_a_list_is_not_removed(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    await runtime.sandboxes()
    watch = aiter(runtime.watch())
    spec = ContainerConfig(name="new", image="i")
    connection.meanwhile = lambda: runtime.create_container("s", spec)
    await runtime.poll()
    assert {*runtime._seen} == {"c", "new"}
    connection.state = m.EXITED
    await runtime.poll()
    told = [await anext(watch) for _ in range(2)]
    assert {(each.container, each.type) for each in told} == {("c", "exited"), ("new", "exited")}


async def test_a_sandbox_that_is_run_during_a_list_is_known(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    connection.meanwhile = lambda: runtime.run_sandbox(SANDBOX)
    assert [each.id for each in await runtime.sandboxes()] == ["s"]
    assert await runtime.create_container("new", ContainerConfig(name="a", image="i")) == "new"
    connection.meanwhile = lambda: runtime.remove_sandbox("new")
    assert [each.id for each in await runtime.sandboxes()] == ["s"]
    with pytest.raises(NotFoundError, match="there is no sandbox new"):
        await runtime.create_container("new", ContainerConfig(name="a", image="i"))


@pytest.mark.parametrize("spec", [{}, {translation.SPEC: "no JSON"}, {translation.SPEC: "[]"}])
async def test_what_cannot_be_read_is_skipped_and_logged_once(
    spec: dict[str, str],
    runtime: CriRuntime,
    connection: FakeConnection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection.sandboxes["odd"] = connection.containers["odd"] = spec
    for _ in range(2):
        await runtime._adopt()
        await runtime.poll()
        assert [each.id for each in await runtime.sandboxes()] == ["s"]
        assert [each.id for each in await runtime.containers()] == ["c"]
    assert [each.getMessage().partition(" that")[0] for each in caplog.records] == [
        "the container runtime has a sandbox odd",
        "the container runtime has a container odd",
    ]
    await runtime.remove_all()
    assert connection.sandboxes == {}


async def test_a_container_that_cannot_be_read_has_a_failure_in_words(
    runtime: CriRuntime, connection: FakeConnection
) -> None:
    connection.annotations = {translation.SPEC: "[]"}
    with pytest.raises(RuntimeFailure, match="cannot be read: Expected"):
        await runtime.attach("c", stdin=False)


def long_log(connection: FakeConnection, log: Path) -> None:
    """The container runs, and has written to its log."""
    sandbox = SandboxConfig(namespace="d", name="w", uid="u", log_directory=str(log.parent))
    spec = ContainerConfig(name="main", image="i", log_path=log.name)
    record = translation.container_record(spec, "s", sandbox)
    config = translation.container_config(spec, sandbox, (), record, "n")
    connection.containers["c"] = connection.annotations = config.annotations
    connection.state = m.RUNNING
    log.write_text("written")


def contents(log: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in log.parent.glob(f"{log.name}*")}


async def test_a_log_that_the_runtime_does_not_open_again_keeps_its_name(
    runtime: CriRuntime,
    connection: FakeConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_rotation, "MOST_BYTES", 3)
    log = tmp_path / "0.log"
    long_log(connection, log)
    connection.failing = "ReopenContainerLog"
    await runtime.poll()
    assert contents(log) == {"0.log": "written"}
    connection.failing = ""
    await runtime.poll()
    assert "0.log" not in contents(log)
    assert [*contents(log).values()] == ["written"]


async def test_a_log_that_cannot_be_renamed_is_no_failure_of_others(
    runtime: CriRuntime,
    connection: FakeConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(before: str, after: str) -> None:
        raise PermissionError

    monkeypatch.setattr(log_rotation, "MOST_BYTES", 3)
    monkeypatch.setattr(os, "rename", refused)
    long_log(connection, tmp_path / "0.log")
    await runtime.poll()
    assert (tmp_path / "0.log").read_text() == "written"


async def test_steady_events_do_not_hold_up_the_list(
    runtime: CriRuntime, connection: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cri_runtime, "POLL_SECONDS", 0.0)
    watch = aiter(runtime.watch())
    for state in (m.RUNNING, m.EXITED, m.RUNNING):
        connection.state = state
        await runtime._look_at("c")
    connection.calls.clear()
    assert [(await anext(watch)).type for _ in range(3)] == ["started", "exited", "started"]
    assert connection.calls.count("ListContainers") == 2
