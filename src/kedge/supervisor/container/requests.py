"""Requests of agents about containers."""

import contextlib
import fcntl
import os
import struct
import termios
import time

from kedge.supervisor.container import container as life
from kedge.supervisor.container.container import ContainerProcess, PidNamespace
from kedge.supervisor.registry import LOST, Registry, published
from kedge.supervisor.sandbox.sandbox import Sandbox
from kedge.supervisor.server import AgentRequest, Handler, RequestError


class ContainerRequests:
    """One method for each request."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._host = registry.host

    def handlers(self) -> dict[str, Handler]:
        """Return the methods by the name of their request."""
        return {
            "get": self._get,
            "create": self._create,
            "start": self._start,
            "stop": self._stop,
            "remove": self._remove,
            "update": self._update,
            "exceed": self._exceed,
            "wait": self._wait,
            "attach": self._attach,
            "resize": self._resize,
        }

    def _get(self, call: AgentRequest) -> None:
        call.answer(published(self._registry.container(call).record))

    def _create(self, call: AgentRequest) -> None:
        sandbox = self._registry.ready_sandbox(self._registry.sandbox(call).id)
        name, spec = call.message["name"], call.message["plan"]
        for other in self._registry.containers_of(sandbox):
            if other.record["name"] == name:
                raise RequestError(f'the container name "{name}" is reserved for {other.id}')
        identity = os.urandom(32).hex()
        parent = sandbox.shared["cgroup_parent"] if self._host.cgroups else ""
        record = {
            "id": identity,
            "sandbox": sandbox.id,
            "name": name,
            "about": call.message["about"],
            "log": spec["log"],
            "state": life.CREATED,
            "created_at": time.time_ns(),
            "started_at": 0,
            "finished_at": 0,
            "exit_code": 0,
            "reason": "",
            "message": "",
            "pid": 0,
            "outer_pid": 0,
            "began": 0,
            "boot": "",
            "cgroup": f"{parent.rstrip('/')}/{identity}" if parent else "",
            "shortfalls": list(spec["shortfalls"]),
        }
        self._registry.add_container(record, spec)
        call.answer({"id": identity})

    def _start(self, call: AgentRequest) -> None:
        container = self._registry.container(call)
        name = f"container {container.id}"
        if container.state != life.CREATED or container.alive:
            raise RequestError(f"{name} was started already: it is {container.state}")
        if not container.has_spec:
            raise RequestError(f"{name} cannot be started: {LOST}")
        sandbox = self._registry.ready_sandbox(container.record["sandbox"])

        def done() -> None:
            if container.record["reason"] == "StartError":
                call.refuse(RequestError(container.record["message"]))
            else:
                call.answer()

        with contextlib.ExitStack() as opened:
            try:
                pids = self._pid_namespace(container, sandbox, opened)
                container.start(sandbox.pod, pids, done)
            except OSError as error:
                container.fail(error.strerror or str(error))
                raise

    def _pid_namespace(
        self, container: ContainerProcess, sandbox: Sandbox, opened: contextlib.ExitStack
    ) -> PidNamespace:
        """Return the pid namespace in which a container starts; `opened` closes its descriptors."""
        spec = container.spec
        if not self._host.isolated or spec["pid"] == "host":
            return PidNamespace(False)
        if spec["pid"] == "pod":
            held = sandbox.pod.held
            return PidNamespace(False, held["pid"], (held["proc"], "/"))
        if spec["pid"] == "target":
            target = self._registry.containers.get(spec["pid_target"])
            if target is None or target.state != life.RUNNING:
                raise RequestError(f"the target container {spec['pid_target']} is not running")
            pid, mnt = (_open_namespace(target.pid, kind, opened) for kind in ("pid", "mnt"))
            return PidNamespace(False, pid, (mnt, "/proc"))
        return PidNamespace(True)

    def _stop(self, call: AgentRequest) -> None:
        container = self._registry.containers.get(call.message["container"])
        if container is None or not container.alive:
            call.answer()
            return
        grace = call.message["grace"]
        timer = self._host.loop.after(max(grace, 0), container.kill)

        def done() -> None:
            timer.cancel()
            call.answer()

        container.when_ended(done)
        if grace > 0:
            container.signal(container.spec["stop_signal"])

    def _remove(self, call: AgentRequest) -> None:
        container = self._registry.containers.get(call.message["container"])
        if container is None:
            call.answer()
            return

        def done() -> None:
            self._registry.discard_container(container)
            call.answer()

        container.when_cleared(done)
        container.kill()

    def _update(self, call: AgentRequest) -> None:
        container = self._registry.container(call)
        if container.has_spec:
            container.update(call.message["resources"])
        call.answer(published(container.record))

    def _exceed(self, call: AgentRequest) -> None:
        """Kill a container as if it had used up its memory."""
        self._registry.running(call).exceed(life.OOM_KILLED, "")
        call.answer()

    def _wait(self, call: AgentRequest) -> None:
        container = self._registry.container(call)
        container.when_ended(lambda: call.answer({"exit_code": container.record["exit_code"]}))

    def _attach(self, call: AgentRequest) -> None:
        container = self._registry.running(call)
        assert container.streams is not None
        stdin = call.message["stdin"] and container.spec["stdin"]
        terminal = container.streams.controlling >= 0
        ends = container.streams.attach(stdin=stdin, once=container.spec["stdin_once"])
        call.answer({"terminal": terminal, "stdin": len(ends) == 3}, ends)

    def _resize(self, call: AgentRequest) -> None:
        container = self._registry.running(call)
        assert container.streams is not None
        size = struct.pack("4H", call.message["height"], call.message["width"], 0, 0)
        if container.streams.controlling >= 0:
            fcntl.ioctl(container.streams.controlling, termios.TIOCSWINSZ, size)
        call.answer()


def _open_namespace(pid: int, kind: str, opened: contextlib.ExitStack) -> int:
    descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor
