"""The supervisor: answers the requests of node agents, and ends everything on shutdown."""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from kedge.supervisor import network
from kedge.supervisor.container.exec_requests import ExecRequests
from kedge.supervisor.container.requests import ContainerRequests
from kedge.supervisor.host import RuntimeHost
from kedge.supervisor.kept_sockets import KeptSockets
from kedge.supervisor.kernel import processes
from kedge.supervisor.kernel.cgroups import Cgroups
from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.loop import READABLE, EventLoop
from kedge.supervisor.machine_capabilities import MachineCapabilities
from kedge.supervisor.registry import Registry, published
from kedge.supervisor.sandbox import user_namespace
from kedge.supervisor.sandbox.requests import SandboxRequests
from kedge.supervisor.server import (
    AgentListener,
    AgentRequest,
    EventFeed,
    Handler,
    RequestError,
)

PROTOCOL: Final = 1
"""Raised when an agent and a supervisor of different releases could misunderstand each other."""
_TRASH_NANOSECONDS: Final = 2_000_000_000
"""Time that a shutdown spends on the files of ended containers."""
_HELPERS_SECONDS: Final = 1.0
"""Time that a shutdown waits for helper processes: the kernel may hold them for milliseconds."""
_CONTAINERS_SECONDS: Final = 5.0
"""Time that a shutdown waits for processes that the kernel does not release."""


class Supervisor:
    """All sandboxes and containers of a node, and the socket for its agent."""

    def __init__(
        self,
        directory: str,
        loop: EventLoop,
        launcher: Launcher,
        capabilities: MachineCapabilities,
        groups: Cgroups,
        outer: int,
    ) -> None:
        """`outer` is the machine's /proc for a rootless supervisor, else -1."""
        self._loop = loop
        self._capabilities = capabilities
        self._no_user_namespaces = _no_user_namespaces(directory, capabilities)
        self._host = RuntimeHost(
            loop,
            launcher,
            root=f"{directory}/root",
            outer=outer,
            capabilities=capabilities,
            groups=groups,
        )
        loop.child(launcher.pid, self._end_with_launcher)
        loop.on(launcher.ends.fileno(), READABLE, self._hear_ends)
        self._feed = EventFeed()
        self._registry = Registry(directory, self._host, self._feed)
        self._registry.recover()
        self._sandboxes = SandboxRequests(self._registry, self._no_user_namespaces)
        commands = ExecRequests(self._registry)
        handlers: dict[str, Handler] = {
            "hello": self._hello,
            "watch": self._watch,
            "list": self._list,
            "shutdown": self._shutdown,
            "mount_memory": self._mount_memory,
            "uplink_namespace": self._uplink_namespace,
            **self._sandboxes.handlers(),
            **ContainerRequests(self._registry).handlers(),
            **commands.handlers(),
            **KeptSockets().handlers(),
            **network.SocketRequests().handlers(),
        }
        self._listener = AgentListener(directory, loop, handlers, left=commands.end_commands_of)
        self._registry.trash.empty()

    def _hear_ends(self) -> None:
        """Handle the ends of processes of containers that are children of the launcher."""
        ended = self._host.launcher.read_ends()
        for each in ended:
            self._loop.reaped(*each)
        if not ended:
            # The launcher is gone.
            self._loop.off(self._host.launcher.ends.fileno())
            self._host.launcher.ends.close()

    def _end_with_launcher(self, *_: object) -> None:
        """Exit, since no container can be started without the launcher. The next supervisor has a
        new one."""
        if not self._host.launcher.closed:
            print("the launcher of containers has ended", file=sys.stderr, flush=True)
            os._exit(1)

    def _hello(self, call: AgentRequest) -> None:
        call.answer(
            {
                "protocol": PROTOCOL,
                "level": self._capabilities.level,
                "capabilities": self._capabilities.document(),
                "cgroups": self._host.cgroups.documents() if self._host.cgroups else [],
                "pid": self._host.own_pid(),
                "no_user_namespaces": self._no_user_namespaces,
                "network": network.OWN if self._host.rootless else network.MACHINE,
            }
        )

    def _mount_memory(self, call: AgentRequest) -> None:
        if not self._host.rootless:
            raise RequestError("the agent mounts volumes in memory itself")
        # Few pods have such volumes.
        from kedge.supervisor import memory_volumes

        memory_volumes.mount(call)

    def _uplink_namespace(self, call: AgentRequest) -> None:
        if not self._host.rootless:
            raise RequestError("the network of this supervisor is that of the machine")
        # Few machines have a program that needs it.
        from kedge.supervisor import uplink_namespace

        call.answer({}, uplink_namespace.make())

    def _watch(self, call: AgentRequest) -> None:
        self._feed.add(call.connection)
        call.answer()

    def _list(self, call: AgentRequest) -> None:
        sandboxes, containers = self._registry.sandboxes, self._registry.containers
        call.answer(
            {
                "sandboxes": [published(each.record) for each in sandboxes.values()],
                "containers": [published(each.record) for each in containers.values()],
            }
        )

    def _shutdown(self, call: AgentRequest) -> None:
        def answer() -> None:
            call.answer()
            self._loop.after(0, self._loop.stop)

        def done() -> None:
            # The caller may remove the directory after the answer, so no helper may be at work.
            self._host.launcher.close()
            processes.kill(self._loop.children)
            self._registry.trash.wait()
            # The next supervisor removes what there is no time for.
            end = time.monotonic_ns() + _TRASH_NANOSECONDS
            self._registry.trash.empty_now(lambda: time.monotonic_ns() > end)
            self._loop.when_alone(answer, _HELPERS_SECONDS)

        self.end_everything(done)

    def end_everything(self, done: Callable[[], None]) -> None:
        """Kill all containers and close all sandboxes; records stay for the next supervisor."""
        self._listener.close()
        sandboxes = list(self._registry.sandboxes.values())
        left = {each.id for each in sandboxes}
        timer = self._loop.after(_CONTAINERS_SECONDS, done)

        def ended(identity: str) -> None:
            left.discard(identity)
            if not left:
                timer.cancel()
                self._loop.after(0, done)

        for sandbox in sandboxes:
            self._sandboxes.end(sandbox, partial(ended, sandbox.id))
        if not sandboxes:
            ended("")


def _no_user_namespaces(directory: str, capabilities: MachineCapabilities) -> str:
    """Return why pods cannot have user namespaces; empty if they can."""
    if not capabilities.is_root:
        return (
            "it takes root, because the kernel shows files with other owners only to the owner of"
            f" their file system, and this node has the level {capabilities.level}"
        )
    return user_namespace.obstacle(directory)


def ignore_signals() -> None:
    """Ignore signals that a terminal sends to the agent: they must not end the containers."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
