"""The supervisor: knows all sandboxes, containers and commands, and does what agents ask for."""

import contextlib
import fcntl
import os
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kedge.supervisor import level as levels
from kedge.supervisor.container import container as life
from kedge.supervisor.container.command import Command
from kedge.supervisor.container.container import Container, Machine
from kedge.supervisor.files import removal
from kedge.supervisor.kernel import descriptors, processes
from kedge.supervisor.launch.launcher import Launcher
from kedge.supervisor.loop import Loop, Timer
from kedge.supervisor.records import Records
from kedge.supervisor.sandbox import user_namespace
from kedge.supervisor.sandbox.namespaces import first_id_of
from kedge.supervisor.sandbox.sandbox import Sandbox
from kedge.supervisor.server import Call, Connection, Door, Failure, Handler, Missing
from kedge.supervisor.spec import ContainerSpec

Document = dict[str, Any]

PROTOCOL: Final = 1
"""Raised when an agent and a supervisor of different releases could misunderstand each other."""
_LOST: Final = "its supervisor ended, and the container with it"
_SWEEP_AFTER: Final = 0.2
_SWEEP_PAUSE: Final = 300.0
"""Longest delay between two attempts to remove files."""
_SWEEP_NICE: Final = 10
_TIDYING: Final = 2_000_000_000
"""Nanoseconds that a shutdown spends on what containers left."""
_FAREWELL: Final = 1.0
"""Seconds that those who help have to be gone: the kernel may hold them for some milliseconds."""
_PATIENCE: Final = 5.0
"""Seconds that a shutdown waits for processes which the kernel does not let go of."""


class Supervisor:
    """Everything, with one method for each request."""

    def __init__(
        self, directory: str, loop: Loop, launcher: Launcher, level: str, outer: int
    ) -> None:
        """`outer` is the machine's /proc for who is in a user namespace, else -1."""
        self._loop = loop
        self._level = level
        self._no_users = _no_user_namespaces(directory, level)
        self._machine = Machine(
            loop,
            launcher,
            root=f"{directory}/root",
            outer=outer,
            isolated=level != levels.PLAIN,
            limited=level == levels.FULL,
        )
        loop.child(launcher.pid, self._end_with_launcher)
        self._sandbox_records = Records(directory, "sandboxes")
        self._container_records = Records(directory, "containers")
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Container] = {}
        self._commands: dict[int, tuple[Command, Connection]] = {}
        self._last_command = 0
        self._sweeper = 0
        """The process that empties the trash; 0 if there is none."""
        self._sweep_timer: Timer | None = None
        self._sweep_pause = 0.0
        self._recover()
        self._door = Door(directory, loop, self._handlers())
        self._door.on_left = self._forget
        self._sweep()

    def _handlers(self) -> dict[str, Handler]:
        return {
            "hello": self._hello,
            "watch": self._watch,
            "list": self._list,
            "get": self._get,
            "run_sandbox": self._run_sandbox,
            "settle_sandbox": self._settle_sandbox,
            "stop_sandbox": self._stop_sandbox,
            "remove_sandbox": self._remove_sandbox,
            "create": self._create,
            "start": self._start,
            "stop": self._stop,
            "remove": self._remove,
            "update": self._update,
            "wait": self._wait,
            "exec": self._exec,
            "wait_command": self._wait_command,
            "kill_command": self._kill_command,
            "attach": self._attach,
            "resize": self._resize,
            "dial": self._dial,
            "shutdown": self._shutdown,
        }

    def _end_with_launcher(self, *_: object) -> None:
        """Exit, since no container can be started without it. The next supervisor has a new
        launcher."""
        if not self._machine.launcher.closed:
            print("the launcher of containers has ended", file=sys.stderr, flush=True)
            os._exit(1)

    def _recover(self) -> None:
        """Take over what a supervisor before this one has left: records of things that are gone,
        and processes that must be."""
        for record in self._sandbox_records.load():
            sandbox = self._sandbox_of(record)
            self._sandboxes[sandbox.id] = sandbox
        for record in self._container_records.load():
            if _forget_plan(record):
                self._container_records.rewrite(record)
            container = self._container_of(record)
            self._containers[container.id] = container
            self._bury(container)
        for sandbox in self._sandboxes.values():
            sandbox.close(_nothing)

    def _bury(self, container: Container) -> None:
        """End whatever a container of an earlier supervisor still has."""
        record = container.record
        if record["state"] == life.EXITED and not record["pid"]:
            return
        if record["pid"] and record["boot"] == self._machine.boot:
            plain = self._level == levels.PLAIN
            processes.kill_remains(record["pid"], record["began"], with_session=plain)
        container.sweep()
        if record["state"] == life.RUNNING or record.get("begun"):
            container.end(life.UNKNOWN, "ContainerStatusUnknown", _LOST)

    def _sandbox_of(self, record: Document) -> Sandbox:
        return Sandbox(record, self._machine, self._sandbox_records)

    def _container_of(self, record: Document, plan: ContainerSpec | None = None) -> Container:
        records = self._container_records
        return Container(record, plan, self._machine, records=records, tell=self._tell)

    def _tell(self, record: Document, type_: str) -> None:
        sandbox = self._sandboxes.get(record["sandbox"])
        uid = sandbox.record["about"].get("uid", "") if sandbox else ""
        if hasattr(self, "_door"):
            event = {"container": record["id"], "sandbox": record["sandbox"]}
            self._door.tell({**event, "pod_uid": uid, "type": type_})

    def _sandbox(self, call: Call) -> Sandbox:
        found = self._sandboxes.get(call.message["sandbox"])
        if found is None:
            raise Missing(f"there is no sandbox {call.message['sandbox']}")
        return found

    def _container(self, call: Call) -> Container:
        found = self._containers.get(call.message["container"])
        if found is None:
            raise Missing(f"there is no container {call.message['container']}")
        return found

    def _running(self, call: Call) -> Container:
        container = self._container(call)
        if container.state != life.RUNNING:
            raise Failure(f"container {container.id} is not running: it is {container.state}")
        return container

    def _hello(self, call: Call) -> None:
        call.answer(
            {
                "protocol": PROTOCOL,
                "level": self._level,
                "pid": self._machine.own_pid(),
                "no_user_namespaces": self._no_users,
            }
        )

    def _watch(self, call: Call) -> None:
        call.connection.watching = True
        call.answer()

    def _list(self, call: Call) -> None:
        call.answer(
            {
                "sandboxes": [_told(each.record) for each in self._sandboxes.values()],
                "containers": [_told(each.record) for each in self._containers.values()],
            }
        )

    def _get(self, call: Call) -> None:
        call.answer(_told(self._container(call).record))

    def _run_sandbox(self, call: Call) -> None:
        name = call.message["name"]
        if first_id_of(call.message["shared"]) and self._no_users:
            raise Failure(f"a pod cannot have a user namespace here: {self._no_users}")
        for other in self._sandboxes.values():
            if other.record["name"] == name:
                raise Failure(f'the sandbox name "{name}" is reserved for {other.id}')
        record = {
            "id": os.urandom(32).hex(),
            "name": name,
            "about": call.message["about"],
            "shared": call.message["shared"],
            "created_at": time.time_ns(),
            "ready": False,
            "ips": [],
            "above": self._missing(call.message["shared"]["cgroup_parent"]),
            "pause": "",
        }
        self._sandbox_records.make(record["id"])
        self._sandbox_records.save(record)
        sandbox = self._sandboxes[record["id"]] = self._sandbox_of(record)

        def done(error: str, descriptors: list[int]) -> None:
            if not error:
                call.answer({**_told(record), "network": sandbox.pod.network}, descriptors)
                return
            for descriptor in descriptors:
                os.close(descriptor)
            sandbox.close(_nothing)
            del self._sandboxes[sandbox.id]
            self._throw_away(self._sandbox_records, sandbox.id)
            call.refuse(Failure(error))

        sandbox.open(done)

    def _missing(self, parent: str) -> list[str]:
        """Groups of a pod that the node agent has not made: they go when the pod does."""
        groups = self._machine.cgroups
        return groups.group(parent).missing() if groups and parent else []

    def _settle_sandbox(self, call: Call) -> None:
        sandbox = self._sandbox(call)
        sandbox.settle(call.message["ips"])
        call.answer(_told(sandbox.record))

    def _stop_sandbox(self, call: Call) -> None:
        sandbox = self._sandboxes.get(call.message["sandbox"])
        if sandbox is None:
            call.answer()
            return
        self._end(sandbox, call.answer)

    def _end(self, sandbox: Sandbox, done: Callable[[], None]) -> None:
        """Kill all its containers, then take it down, then go on."""
        inside = [
            each for each in self._containers.values() if each.record["sandbox"] == sandbox.id
        ]
        left = {each.id for each in inside}

        def gone(identity: str) -> None:
            left.discard(identity)
            if not left:
                sandbox.close(done)

        for each in inside:
            each.kill()
            each.when_cleared(partial(gone, each.id))
        if not inside:
            sandbox.close(done)

    def _remove_sandbox(self, call: Call) -> None:
        sandbox = self._sandboxes.get(call.message["sandbox"])
        if sandbox is None:
            call.answer()
            return

        def finish() -> None:
            inside = [
                each for each in self._containers.values() if each.record["sandbox"] == sandbox.id
            ]
            for each in inside:
                self._discard(each)
            if self._sandboxes.pop(sandbox.id, None):
                self._throw_away(self._sandbox_records, sandbox.id)
            call.answer({"containers": [each.id for each in inside]})

        self._end(sandbox, finish)

    def _create(self, call: Call) -> None:
        sandbox = self._sandbox(call)
        if not sandbox.record["ready"]:
            raise Failure(f"sandbox {sandbox.id} is not ready")
        message = call.message
        for other in self._containers.values():
            mine = other.record["sandbox"] == sandbox.id
            if mine and other.record["name"] == message["name"]:
                raise Failure(f'the container name "{message["name"]}" is reserved for {other.id}')
        identity = os.urandom(32).hex()
        parent = sandbox.shared["cgroup_parent"] if self._machine.cgroups else ""
        record = {
            "id": identity,
            "sandbox": sandbox.id,
            "name": message["name"],
            "about": message["about"],
            "log": message["plan"]["log"],
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
            "shortfalls": list(message["plan"]["shortfalls"]),
        }
        self._container_records.make(identity, "upper", "work")
        self._container_records.save(record)
        self._containers[identity] = self._container_of(record, message["plan"])
        call.answer({"id": identity})

    def _start(self, call: Call) -> None:
        container = self._container(call)
        if container.state != life.CREATED or container.alive:
            raise Failure(f"container {container.id} was started already: it is {container.state}")
        if not container.is_planned:
            raise Failure(f"container {container.id} cannot be started: {_LOST}")
        sandbox = self._sandboxes[container.record["sandbox"]]
        if not sandbox.record["ready"]:
            raise Failure(f"sandbox {sandbox.id} is not ready")

        def done() -> None:
            if container.record["reason"] == "StartError":
                call.refuse(Failure(container.record["message"]))
            else:
                call.answer()

        with contextlib.ExitStack() as held:
            try:
                container.start(sandbox.pod, self._pids(container, sandbox, held), done)
            except OSError as error:
                container.fail(error.strerror or str(error))
                raise

    def _pids(
        self, container: Container, sandbox: Sandbox, held: contextlib.ExitStack
    ) -> life.Pids:
        """The pid namespace a container starts in; what is opened for it is left to be closed."""
        plan = container.plan
        if not self._machine.isolated or plan["pid"] == "host":
            return life.Pids(False)
        if plan["pid"] == "pod":
            return life.Pids(False, sandbox.pod.held["pid"], (sandbox.pod.held["proc"], "/"))
        if plan["pid"] == "target":
            target = self._containers.get(plan["pid_target"])
            if target is None or target.state != life.RUNNING:
                raise Failure(f"the target container {plan['pid_target']} is not running")
            opened = []
            for kind in ("pid", "mnt"):
                path = f"/proc/{target.pid}/ns/{kind}"
                opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                held.callback(os.close, opened[-1])
            return life.Pids(False, opened[0], (opened[1], "/proc"))
        return life.Pids(True)

    def _stop(self, call: Call) -> None:
        container = self._containers.get(call.message["container"])
        if container is None or not container.alive:
            call.answer()
            return
        grace = call.message["grace"]
        timer = self._loop.after(max(grace, 0), container.kill)

        def done() -> None:
            timer.cancel()
            call.answer()

        container.when_ended(done)
        if grace > 0:
            container.signal(container.plan["stop_signal"])

    def _remove(self, call: Call) -> None:
        container = self._containers.get(call.message["container"])
        if container is None:
            call.answer()
            return

        def done() -> None:
            self._discard(container)
            call.answer()

        container.when_cleared(done)
        container.kill()

    def _discard(self, container: Container) -> None:
        if self._containers.pop(container.id, None) is None:
            return
        container.remove_log()
        self._throw_away(self._container_records, container.id)
        self._tell(container.record, "removed")

    def _throw_away(self, records: Records, identity: str) -> None:
        records.discard(identity)
        if not self._sweeper:
            self._sweep_after(_SWEEP_AFTER)

    def _sweep_after(self, seconds: float) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_timer = self._loop.after(seconds, self._sweep)

    def _sweep(self) -> None:
        """Empty the trash in a process of its own: a container may have written a lot."""
        self._sweep_timer = None
        if not os.listdir(self._container_records.trash):
            self._sweep_pause = 0.0
            return
        self._sweeper = pid = os.fork()
        if pid == 0:
            try:
                # The lock must not outlive the supervisor because of this.
                descriptors.keep_only({0, 1, 2})
                os.nice(_SWEEP_NICE)
                self._empty_trash(removal.never)
            finally:
                # On any error: the next supervisor would continue from here.
                os._exit(0)
        self._loop.child(pid, self._swept)

    def _empty_trash(self, enough: Callable[[], bool]) -> None:
        trash = self._container_records.trash
        for name in os.listdir(trash):
            removal.remove(f"{trash}/{name}", enough)

    def _swept(self, *_: object) -> None:
        """Try again to remove files, with back-off."""
        self._sweeper = 0
        self._sweep_pause = min(max(self._sweep_pause * 2, _SWEEP_AFTER), _SWEEP_PAUSE)
        self._sweep_after(self._sweep_pause)

    def _update(self, call: Call) -> None:
        container = self._container(call)
        if container.is_planned:
            container.update(call.message["resources"])
        call.answer(_told(container.record))

    def _wait(self, call: Call) -> None:
        container = self._container(call)
        container.when_ended(lambda: call.answer({"exit_code": container.record["exit_code"]}))

    def _exec(self, call: Call) -> None:
        container = self._running(call)
        self._last_command += 1
        identity = self._last_command
        streams: list[int] = []

        def done() -> None:
            if command.error:
                del self._commands[identity]
                for descriptor in streams:
                    os.close(descriptor)
                call.refuse(Failure(command.error))
            else:
                call.answer({"command": identity}, streams)

        command = Command(identity, container, self._machine, done)
        message = call.message
        streams += command.start(
            message["argv"], terminal=message["terminal"], stdin=message["stdin"]
        )
        self._commands[identity] = command, call.connection

    def _wait_command(self, call: Call) -> None:
        command = self._command(call)

        def done() -> None:
            self._commands.pop(command.id, None)
            call.answer({"exit_code": command.exit_code})

        if command.exit_code is None:
            command.waiting.append(done)
        else:
            done()

    def _kill_command(self, call: Call) -> None:
        self._command(call).kill()
        call.answer()

    def _command(self, call: Call) -> Command:
        found = self._commands.get(call.message["command"])
        if found is None:
            raise Missing(f"there is no command {call.message['command']}")
        return found[0]

    def _forget(self, connection: Connection) -> None:
        """Nobody is left to read what those commands say."""
        for identity, (command, owner) in list(self._commands.items()):
            if owner is connection:
                command.kill()
                del self._commands[identity]

    def _attach(self, call: Call) -> None:
        container = self._running(call)
        assert container.streams is not None
        stdin = call.message["stdin"] and container.plan["stdin"]
        terminal = container.streams.controlling >= 0
        given = container.streams.attach(stdin=stdin, once=container.plan["stdin_once"])
        call.answer({"terminal": terminal, "stdin": len(given) == 3}, given)

    def _resize(self, call: Call) -> None:
        container = self._running(call)
        assert container.streams is not None
        size = struct.pack("4H", call.message["height"], call.message["width"], 0, 0)
        if container.streams.controlling >= 0:
            fcntl.ioctl(container.streams.controlling, termios.TIOCSWINSZ, size)
        call.answer()

    def _dial(self, call: Call) -> None:
        """A socket in the pod's network, for the agent to connect."""
        sandbox = self._sandbox(call)
        if not sandbox.record["ready"]:
            raise Failure(f"sandbox {sandbox.id} is not ready")
        if "net" not in sandbox.pod.held:
            made = socket.socket(call.message["family"], socket.SOCK_STREAM)
            call.answer({}, [made.detach()])
            return

        def done(error: str, descriptors: list[int]) -> None:
            if error:
                call.refuse(Failure(error))
            else:
                call.answer({}, descriptors)

        sandbox.dial(call.message["family"], done)

    def _shutdown(self, call: Call) -> None:
        def answer() -> None:
            call.answer()
            self._loop.after(0, self._loop.stop)

        def done() -> None:
            # Nobody is to be at work here any more when the next command goes on.
            self._machine.launcher.close()
            processes.kill(self._loop.children)
            if self._sweeper:
                os.waitid(os.P_PID, self._sweeper, os.WEXITED | os.WNOWAIT)
            # The next supervisor removes what there is no time for.
            end = time.monotonic_ns() + _TIDYING
            self._empty_trash(lambda: time.monotonic_ns() > end)
            self._loop.when_alone(answer, _FAREWELL)

        self.end_everything(done)

    def end_everything(self, done: Callable[[], None]) -> None:
        """Kill all containers and take all sandboxes down; records stay for the next supervisor."""
        self._door.close()
        left = set(self._sandboxes)
        timer = self._loop.after(_PATIENCE, done)

        def ended(identity: str) -> None:
            left.discard(identity)
            if not left:
                timer.cancel()
                self._loop.after(0, done)

        for sandbox in list(self._sandboxes.values()):
            self._end(sandbox, partial(ended, sandbox.id))
        if not left:
            ended("")


def _forget_plan(record: Document) -> bool:
    """Convert a record of an earlier release, which has variables and arguments; returns whether
    it was one."""
    plan = record.pop("plan", None)
    if plan is None:
        return False
    record["log"] = plan["log"]
    for name in ("env", "command", "args"):
        record["about"].pop(name, None)
    return True


def _told(record: Document) -> Document:
    """What agents are told of a record."""
    told = {name: value for name, value in record.items() if name not in ("log", "shared")}
    if "outer_pid" in told:
        told["pid"] = told.pop("outer_pid")
    return told


def _no_user_namespaces(directory: str, level: str) -> str:
    """Why pods cannot have user namespaces; empty if they can."""
    if level != levels.FULL:
        return f"it takes root and control groups, and this node has the level {level}"
    return user_namespace.obstacle(directory)


def _nothing() -> None:
    """For those who need not be told."""


def ignore_signals() -> None:
    """What is meant for an agent in the same terminal must not end the containers."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
