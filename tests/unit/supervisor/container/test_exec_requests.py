from typing import Any

import pytest

from kedge.supervisor.container.exec_requests import ExecRequests
from kedge.supervisor.server import UnknownIdError


class Command:
    """A command that runs until it is killed."""

    id = 1
    exit_code: int | None = None

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.killed = 0

    def kill(self) -> None:
        self.killed += 1


class Call:
    def __init__(self, **message: Any) -> None:
        self.message = message
        self.answers: list[Any] = []

    def answer(self, result: Any = None) -> None:
        self.answers.append(result)


@pytest.fixture
def requests() -> ExecRequests:
    registry: Any = None
    return ExecRequests(registry)


def run(requests: ExecRequests, owner: Any = "agent") -> Command:
    command: Any = Command()
    requests._commands[1] = command, owner
    return command  # type: ignore[no-any-return]


def test_waiting_ends_with_the_command(requests: ExecRequests) -> None:
    command, call = run(requests), Call(command=1)
    requests.handlers()["wait_command"](call)  # type: ignore[arg-type]
    assert call.answers == []
    command.exit_code = 3
    command.waiting[0]()
    assert call.answers == [{"exit_code": 3}]
    assert requests._commands == {}


def test_a_command_is_killed_on_request(requests: ExecRequests) -> None:
    command, call = run(requests), Call(command=1)
    requests.handlers()["kill_command"](call)  # type: ignore[arg-type]
    assert (command.killed, call.answers) == (1, [None])
    with pytest.raises(UnknownIdError, match="there is no command 2"):
        requests.handlers()["kill_command"](Call(command=2))  # type: ignore[arg-type]


def test_commands_of_an_agent_end_with_its_connection(requests: ExecRequests) -> None:
    command = run(requests, owner="one")
    other: Any = "other"
    requests.end_commands_of(other)
    assert command.killed == 0
    one: Any = "one"
    requests.end_commands_of(one)
    assert (command.killed, requests._commands) == (1, {})
