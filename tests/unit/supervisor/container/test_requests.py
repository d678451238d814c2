import contextlib
import os
from types import SimpleNamespace
from typing import Any

import pytest

from kedge.supervisor.container.container import PidNamespace
from kedge.supervisor.container.requests import ContainerRequests
from kedge.supervisor.server import RequestError


class Call:
    def __init__(self, **message: Any) -> None:
        self.message = message
        self.answers: list[Any] = []
        self.errors: list[str] = []

    def answer(self, result: Any = None, descriptors: Any = ()) -> None:
        self.answers.append(result)

    def refuse(self, error: Exception) -> None:
        self.errors.append(str(error))


class Container:
    """A container whose process the test ends."""

    def __init__(self, **changed: Any) -> None:
        self.id = "c1"
        self.state = "created"
        self.alive = False
        self.has_spec = True
        self.spec: dict[str, Any] = {"pid": "container", "pid_target": "", "stop_signal": 15}
        self.record: dict[str, Any] = {"sandbox": "s1", "name": "web", "exit_code": 0, "reason": ""}
        self.pid = os.getpid()
        self.log: list[str] = []
        self.ended: list[Any] = []
        vars(self).update(changed)

    def when_ended(self, callback: Any) -> None:
        self.ended.append(callback)

    def when_cleared(self, callback: Any) -> None:
        self.ended.append(callback)

    def signal(self, number: int) -> None:
        self.log.append(f"signal {number}")

    def kill(self) -> None:
        self.log.append("kill")

    def start(self, pod: Any, pids: PidNamespace, done: Any) -> None:
        self.log.append(f"start {pids.is_new}")
        self.ended.append(done)

    def fail(self, text: str) -> None:
        self.log.append(f"fail {text}")


class Registry:
    """One sandbox with one container."""

    def __init__(self, container: Container) -> None:
        self.timers: list[tuple[float, Any]] = []
        pod = SimpleNamespace(held={"pid": 5, "proc": 6})
        self.one: Any = SimpleNamespace(id="s1", pod=pod, shared={"cgroup_parent": "/pods/"})
        self.containers = {"c1": container}
        self.added: list[dict[str, Any]] = []
        self.discarded: list[Any] = []
        loop = SimpleNamespace(after=self._after)
        self.host = SimpleNamespace(loop=loop, cgroups=object(), isolated=True)

    def _after(self, seconds: float, callback: Any) -> Any:
        self.timers.append((seconds, callback))
        return SimpleNamespace(cancel=lambda: self.timers.clear())

    def sandbox(self, call: Any) -> Any:
        return self.one

    def ready_sandbox(self, identity: str) -> Any:
        return self.one

    def container(self, call: Any) -> Any:
        return self.containers["c1"]

    def containers_of(self, sandbox: Any) -> list[Any]:
        return list(self.containers.values())

    def add_container(self, record: dict[str, Any], spec: Any) -> None:
        self.added.append(record)

    def discard_container(self, container: Any) -> None:
        self.discarded.append(container)


def served(container: Container) -> tuple[Registry, Any]:
    registry: Any = Registry(container)
    return registry, ContainerRequests(registry).handlers()


def test_a_created_container_has_a_record_and_a_cgroup_below_its_pod() -> None:
    registry, handlers = served(Container())
    spec = {"log": "/l", "shortfalls": ["none"]}
    call = Call(sandbox="s1", name="other", about={}, plan=spec)
    handlers["create"](call)
    [record] = registry.added
    assert call.answers == [{"id": record["id"]}]
    assert record["cgroup"] == f"/pods/{record['id']}"
    assert (record["state"], record["shortfalls"]) == ("created", ["none"])


def test_a_name_is_used_once_in_a_pod() -> None:
    _, handlers = served(Container())
    with pytest.raises(RequestError, match='the container name "web" is reserved for c1'):
        handlers["create"](Call(sandbox="s1", name="web", about={}, plan={}))


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"state": "running"}, "was started already"),
        ({"alive": True}, "was started already"),
        ({"has_spec": False}, "its supervisor ended"),
    ],
)
def test_a_container_starts_once(changed: dict[str, Any], error: str) -> None:
    _, handlers = served(Container(**changed))
    with pytest.raises(RequestError, match=error):
        handlers["start"](Call(container="c1"))


def test_the_answer_to_a_start_says_whether_the_program_runs() -> None:
    container = Container()
    _, handlers = served(container)
    call = Call(container="c1")
    handlers["start"](call)
    assert container.log == ["start True"]
    container.ended[0]()
    container.record.update(reason="StartError", message="no such file")
    container.ended[0]()
    assert (call.answers, call.errors) == ([None], ["no such file"])


def test_a_container_that_cannot_be_forked_has_failed() -> None:
    def refused(*_: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    container = Container(start=refused)
    _, handlers = served(container)
    with pytest.raises(OSError, match="Resource"):
        handlers["start"](Call(container="c1"))
    assert container.log == ["fail Resource temporarily unavailable"]


def test_a_stop_sends_the_signal_and_kills_after_the_grace_period() -> None:
    container = Container(alive=True)
    registry, handlers = served(container)
    call = Call(container="c1", grace=30)
    handlers["stop"](call)
    [(seconds, callback)] = registry.timers
    callback()
    assert (seconds, container.log) == (30, ["signal 15", "kill"])
    container.ended[0]()
    assert (call.answers, registry.timers) == ([None], [])


def test_without_a_grace_period_there_is_no_signal() -> None:
    container = Container(alive=True)
    _, handlers = served(container)
    handlers["stop"](Call(container="c1", grace=0))
    assert container.log == []


def test_stopping_and_removing_a_container_that_is_gone_succeeds() -> None:
    registry, handlers = served(Container())
    registry.containers.clear()
    for name in ("stop", "remove"):
        call = Call(container="c1", grace=1)
        handlers[name](call)
        assert call.answers == [None]


def test_a_container_is_removed_when_nothing_of_it_runs() -> None:
    container = Container(alive=True)
    registry, handlers = served(container)
    handlers["remove"](Call(container="c1"))
    assert registry.discarded == []
    container.ended[0]()
    assert registry.discarded == [container]


@pytest.mark.parametrize(
    ("pid", "expected"),
    [
        ("host", PidNamespace(False)),
        ("pod", PidNamespace(False, 5, (6, "/"))),
        ("container", PidNamespace(True)),
    ],
)
def test_the_pid_namespace_follows_from_the_spec(pid: str, expected: PidNamespace) -> None:
    container: Any = Container()
    registry: Any = Registry(container)
    container.spec["pid"] = pid
    requests = ContainerRequests(registry)
    with contextlib.ExitStack() as opened:
        assert requests._pid_namespace(container, registry.one, opened) == expected


def test_a_target_container_must_run() -> None:
    container: Any = Container()
    registry: Any = Registry(container)
    container.spec.update(pid="target", pid_target="c1")
    requests = ContainerRequests(registry)
    with contextlib.ExitStack() as opened:
        with pytest.raises(RequestError, match="the target container c1 is not running"):
            requests._pid_namespace(container, registry.one, opened)
        container.state = "running"
        found = requests._pid_namespace(container, registry.one, opened)
        assert (found.is_new, found.proc[1]) == (False, "/proc")
        assert os.readlink(f"/proc/self/fd/{found.shared}").startswith("pid:")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found.shared)
