from types import SimpleNamespace
from typing import Any

import pytest

from kedge.supervisor.sandbox.requests import SandboxRequests
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


class Sandbox:
    """A sandbox that opens when the test says so."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.id = record["id"]
        self.record = record
        self.pod = SimpleNamespace(network="/proc/{}/fd/3".format, held={})
        self.opened: Any = None
        self.closed = 0

    def open(self, done: Any) -> None:
        self.opened = done

    def close(self, done: Any) -> None:
        self.closed += 1
        done()


class Container:
    def __init__(self, identity: str) -> None:
        self.id = identity
        self.killed = 0
        self.cleared: Any = None

    def kill(self) -> None:
        self.killed += 1

    def when_cleared(self, callback: Any) -> None:
        self.cleared = callback


class Registry:
    def __init__(self) -> None:
        self.sandboxes: dict[str, Any] = {}
        self.inside: list[Any] = []
        self.discarded: list[str] = []
        self.host = SimpleNamespace(cgroups=None, own_pid=lambda: 1)

    def add_sandbox(self, record: dict[str, Any]) -> Sandbox:
        made = self.sandboxes[record["id"]] = Sandbox(record)
        return made

    def containers_of(self, sandbox: Any) -> list[Any]:
        return list(self.inside)

    def discard_container(self, container: Any) -> None:
        self.discarded.append(container.id)

    def discard_sandbox(self, sandbox: Any) -> None:
        self.sandboxes.pop(sandbox.id)
        self.discarded.append(sandbox.id)


def run(registry: Registry, *, first_id: int = 0, no_users: str = "") -> tuple[Call, Any]:
    served: Any = SandboxRequests(registry, no_users)  # type: ignore[arg-type]
    shared = {"cgroup_parent": "", "first_id": first_id}
    call = Call(name="pod", about={"uid": "u"}, shared=shared)
    served.handlers()["run_sandbox"](call)
    return call, served


def test_a_sandbox_is_answered_when_it_is_open() -> None:
    registry = Registry()
    call, _ = run(registry)
    [sandbox] = registry.sandboxes.values()
    assert call.answers == []
    sandbox.opened("", [])
    assert call.answers[0]["network"] == "/proc/1/fd/3"
    assert "shared" not in call.answers[0]


def test_a_sandbox_that_cannot_be_opened_is_gone() -> None:
    registry = Registry()
    call, _ = run(registry)
    [sandbox] = registry.sandboxes.values()
    sandbox.opened("no namespaces", [])
    assert (call.errors, sandbox.closed, registry.sandboxes) == (["no namespaces"], 1, {})


def test_names_are_used_once() -> None:
    registry = Registry()
    run(registry)
    with pytest.raises(RequestError, match='the sandbox name "pod" is reserved for'):
        run(registry)


def test_a_user_namespace_that_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError, match="cannot have a user namespace here: old kernel"):
        run(Registry(), first_id=65_536, no_users="old kernel")


def test_a_sandbox_is_removed_after_its_containers() -> None:
    registry = Registry()
    _, served = run(registry)
    [identity] = registry.sandboxes
    sandbox = registry.sandboxes[identity]
    registry.inside = [Container("a"), Container("b")]
    call = Call(sandbox=identity)
    served.handlers()["remove_sandbox"](call)
    assert [each.killed for each in registry.inside] == [1, 1]
    registry.inside[0].cleared()
    assert sandbox.closed == 0
    registry.inside[1].cleared()
    assert (sandbox.closed, registry.discarded) == (1, ["a", "b", identity])
    assert call.answers == [{"containers": ["a", "b"]}]


def test_removing_a_sandbox_that_is_gone_succeeds() -> None:
    served: Any = SandboxRequests(Registry(), "")  # type: ignore[arg-type]
    for name in ("stop_sandbox", "remove_sandbox"):
        call = Call(sandbox="none")
        served.handlers()[name](call)
        assert call.answers == [None]
