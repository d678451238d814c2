"""Requests of agents about commands that are executed in containers."""

import os

from kedge.supervisor.container.exec import ExecProcess
from kedge.supervisor.registry import Registry
from kedge.supervisor.server import (
    AgentConnection,
    AgentRequest,
    Handler,
    RequestError,
    UnknownIdError,
)


class ExecRequests:
    """One method for each request, and the commands that run."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._commands: dict[int, tuple[ExecProcess, AgentConnection]] = {}
        self._last = 0

    def handlers(self) -> dict[str, Handler]:
        """Return the methods by the name of their request."""
        return {
            "exec": self._exec,
            "wait_command": self._wait,
            "kill_command": self._kill,
        }

    def _exec(self, call: AgentRequest) -> None:
        container = self._registry.running(call)
        self._last += 1
        identity = self._last
        streams: list[int] = []

        def done() -> None:
            if command.error:
                del self._commands[identity]
                for descriptor in streams:
                    os.close(descriptor)
                call.refuse(RequestError(command.error))
            else:
                call.answer({"command": identity}, streams)

        command = ExecProcess(identity, container, self._registry.host, done)
        message = call.message
        streams += command.start(
            message["argv"], terminal=message["terminal"], stdin=message["stdin"]
        )
        self._commands[identity] = command, call.connection

    def _wait(self, call: AgentRequest) -> None:
        command = self._command(call)

        def done() -> None:
            self._commands.pop(command.id, None)
            call.answer({"exit_code": command.exit_code})

        if command.exit_code is None:
            command.waiting.append(done)
        else:
            done()

    def _kill(self, call: AgentRequest) -> None:
        self._command(call).kill()
        call.answer()

    def _command(self, call: AgentRequest) -> ExecProcess:
        found = self._commands.get(call.message["command"])
        if found is None:
            raise UnknownIdError(f"there is no command {call.message['command']}")
        return found[0]

    def end_commands_of(self, connection: AgentConnection) -> None:
        """Kill the commands of an agent that has disconnected: their output has no reader."""
        for identity, (command, owner) in list(self._commands.items()):
            if owner is connection:
                command.kill()
                del self._commands[identity]
